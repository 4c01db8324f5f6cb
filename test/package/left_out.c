/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Prints what each plain call and each call by descriptor returns, with the name of the operation and the pass.
 */
#include <dynnorm.h>

#include <stdio.h>

enum { TOKENS = 3, CHANNELS = 40 };

static float x[TOKENS * CHANNELS], y[TOKENS * CHANNELS], dy[TOKENS * CHANNELS], dx[TOKENS * CHANNELS];
static float weight[CHANNELS], bias[CHANNELS];

static void print(const char *name, const char *pass, dynnorm_status plain, dynnorm_status by_descriptor) {
    printf("%s %s: %s, %s\n", name, pass, dynnorm_status_string(plain), dynnorm_status_string(by_descriptor));
}

/* A call with all tensors of both passes. */
static dynnorm_descriptor descriptor(dynnorm_operation operation) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = operation;
    call.tokens = TOKENS;
    call.channels = CHANNELS;
    call.x.data = x;
    call.y.data = y;
    call.dy.data = dy;
    call.dx.data = dx;
    call.alpha = call.beta = call.scale = 1;
    return call;
}

/* Whether a call with a residual writes something, and then finds that it cannot be computed. */
static int writes_in_vain(dynnorm_operation operation, size_t tokens) {
    dynnorm_descriptor call = descriptor(operation);
    float sum[TOKENS * CHANNELS] = {-1};
    call.tokens = tokens;
    call.residual.data = dy;
    call.sum.data = sum;
    y[0] = -1;
    return dynnorm_forward(&call) && (sum[0] != -1 || y[0] != -1);
}

static dynnorm_status forward(dynnorm_operation operation) {
    dynnorm_descriptor call = descriptor(operation);
    if (writes_in_vain(operation, 1) || writes_in_vain(operation, TOKENS))
        return (dynnorm_status)-1;
    return dynnorm_forward(&call);
}

static dynnorm_status backward(dynnorm_operation operation) {
    dynnorm_descriptor call = descriptor(operation);
    return dynnorm_backward(&call);
}

/* One token and several take different ways: the status is that of both. */
static dynnorm_status both(dynnorm_status one_token, dynnorm_status several) {
    return one_token == several ? several : (dynnorm_status)-1;
}

int main(void) {
    dynnorm_isa(); /* chooses the instruction set, so that calls with one token go to its own functions */
    for (int i = 0; i < TOKENS * CHANNELS; i++)
        x[i] = dy[i] = (float)(i % 7);
    for (int i = 0; i < CHANNELS; i++)
        weight[i] = 1;
    print("layernorm", "forward",
          both(dynnorm_layernorm_forward_f32(y, NULL, NULL, x, weight, bias, 1e-5f, 1, CHANNELS),
               dynnorm_layernorm_forward_f32(y, NULL, NULL, x, weight, bias, 1e-5f, TOKENS, CHANNELS)),
          forward(DYNNORM_LAYERNORM));
    print("layernorm", "backward",
          dynnorm_layernorm_backward_f32(dx, NULL, NULL, dy, x, weight, NULL, NULL, 1e-5f, TOKENS, CHANNELS),
          backward(DYNNORM_LAYERNORM));
    print("rmsnorm", "forward",
          both(dynnorm_rmsnorm_forward_f32(y, NULL, x, weight, 1e-5f, 1, CHANNELS),
               dynnorm_rmsnorm_forward_f32(y, NULL, x, weight, 1e-5f, TOKENS, CHANNELS)),
          forward(DYNNORM_RMSNORM));
    print("rmsnorm", "backward", dynnorm_rmsnorm_backward_f32(dx, NULL, dy, x, weight, NULL, 1e-5f, TOKENS, CHANNELS),
          backward(DYNNORM_RMSNORM));
    print("dyt", "forward",
          both(dynnorm_dyt_forward_f32(y, x, weight, bias, 1, 1, 1, CHANNELS),
               dynnorm_dyt_forward_f32(y, x, weight, bias, 1, 1, TOKENS, CHANNELS)),
          forward(DYNNORM_DYT));
    print("dyt", "backward", dynnorm_dyt_backward_f32(dx, NULL, NULL, NULL, dy, x, weight, 1, 1, TOKENS, CHANNELS),
          backward(DYNNORM_DYT));
    print("dyisru", "forward",
          both(dynnorm_dyisru_forward_f32(y, x, weight, bias, 1, 1, 1, CHANNELS),
               dynnorm_dyisru_forward_f32(y, x, weight, bias, 1, 1, TOKENS, CHANNELS)),
          forward(DYNNORM_DYISRU));
    print("dyisru", "backward",
          dynnorm_dyisru_backward_f32(dx, NULL, NULL, NULL, dy, x, weight, 1, 1, TOKENS, CHANNELS),
          backward(DYNNORM_DYISRU));
    dynnorm_status centered = forward(DYNNORM_CENTERED_DYISRU);
    print("centered_dyisru", "forward", centered, centered);
    centered = backward(DYNNORM_CENTERED_DYISRU);
    print("centered_dyisru", "backward", centered, centered);
    dynnorm_descriptor typed = descriptor(DYNNORM_LAYERNORM);
    typed.x.type = typed.y.type = DYNNORM_BF16;
    dynnorm_status of_type = dynnorm_forward(&typed);
    print("types", "forward", of_type, of_type);
    return 0;
}
