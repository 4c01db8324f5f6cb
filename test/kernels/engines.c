/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Rows as engines compute them: the residual's variants R0 (the norm of the rounded sum) and R1 (of the sum before
 * rounding), the weight's variants W1 (rounded once) and W2 (rounded before the weight), and a weight of 1 + w, which
 * is formed in float. The table was computed from these formulas with rational numbers and roots of 60 digits. No value
 * of it is so near to the middle between two numbers that an error within the bounds could round it elsewhere. All four
 * variants of a row differ, and differ from what a 1 + w in 16 bits would give.
 */
#include "each_kernel.h"
#include "elements.h"
#include "tap.h"

#include <stdio.h>

enum { CHANNELS = 4 };

struct row {
    dynnorm_operation operation;
    dynnorm_type type; /* of all of it */
    double x[CHANNELS];
    double residual[CHANNELS];
    double weight[CHANNELS]; /* to which 1 is added */
    double bias[CHANNELS];   /* RMSNorm has none */
    uint32_t sum[CHANNELS];
    uint32_t y[2][2][CHANNELS]; /* of R0 and R1, each with W1 and W2 */
};

static const struct row table[] = {
    {DYNNORM_RMSNORM,
     DYNNORM_BF16,
     {0x1.3cp-1, 0x1.94p-1, -0x1.52p+0, 0x1.b8p+1},
     {0x1.1cp-1, 0x1.32p+0, -0x1.3ep-1, -0x1.7ap-1},
     {-0x1.c2p-8, -0x1.16p-9, 0x1.9ep-7, 0x1.46p-8},
     {0},
     {0x3f96, 0x3ffe, 0xbff8, 0x402d},
     {{{0x3f0b, 0x3f6d, 0xbf6a, 0x3fa2}, {0x3f0b, 0x3f6c, 0xbf6a, 0x3fa2}},
      {{0x3f0b, 0x3f6d, 0xbf6b, 0x3fa2}, {0x3f0b, 0x3f6c, 0xbf6b, 0x3fa2}}}},
    {DYNNORM_RMSNORM,
     DYNNORM_F16,
     {0x1.3bp+0, -0x1.394p+0, -0x1.cf8p-1, -0x1.43cp+1},
     {-0x1.ef8p-1, -0x1.1p-1, 0x1.4ap+0, -0x1.04p+1},
     {-0x1.ddcp-6, 0x1.39cp-8, 0x1.d9p-6, 0x1.7bp-7},
     {0},
     {0x3434, 0xbf05, 0x3624, 0xc490},
     {{{0x2e63, 0xb985, 0x30f2, 0xbf3a}, {0x2e64, 0xb986, 0x30f3, 0xbf3a}},
      {{0x2e64, 0xb986, 0x30f2, 0xbf3a}, {0x2e64, 0xb986, 0x30f3, 0xbf39}}}},
    {DYNNORM_LAYERNORM,
     DYNNORM_BF16,
     {0x1.9ap-1, 0x1.a4p-1, 0x1.8p+1, -0x1.06p+1},
     {0x1.22p+0, 0x1.7cp+0, 0x1.74p+0, -0x1.72p-3},
     {-0x1.e8p-7, 0x1.4ep-6, 0x1.2ep-9, 0x1.46p-9},
     {0x1.6cp-1, -0x1.0ep-3, -0x1.26p+0, -0x1.8cp-3},
     {0x3ff8, 0x4014, 0x408e, 0xc00f},
     {{{0x3f56, 0x3e1b, 0xbcc9, 0xbfdd}, {0x3f56, 0x3e1b, 0xbcc0, 0xbfdd}},
      {{0x3f56, 0x3e17, 0xbca3, 0xbfdc}, {0x3f56, 0x3e17, 0xbcc0, 0xbfdc}}}},
    {DYNNORM_LAYERNORM,
     DYNNORM_F16,
     {0x1.1f4p+0, 0x1.cep+0, -0x1.cfcp+0, -0x1.6dp-3},
     {0x1.2bcp-2, 0x1.a68p-1, -0x1.1bp-5, -0x1.9p-3},
     {-0x1.4dp-6, -0x1.d68p-8, 0x1.244p-6, 0x1.0acp-9},
     {-0x1.b4cp-2, -0x1.afp-2, 0x1.554p+0, 0x1.23cp-1},
     {0x3da9, 0x4142, 0xbf62, 0xb5fa},
     {{{0x2d46, 0x39fb, 0x2c13, 0x2fa4}, {0x2d44, 0x39fa, 0x2c10, 0x2fa4}},
      {{0x2d42, 0x39fc, 0x2c13, 0x2fa5}, {0x2d3c, 0x39fc, 0x2c10, 0x2fa4}}}},
    {DYNNORM_DYISRU,
     DYNNORM_BF16,
     {0x1.46p+0, -0x1.4cp+2, 0x1.3ep+0, 0x1.ecp-1},
     {0x1.bp+0, 0x1.b6p-2, -0x1.14p-4, 0x1.0cp-1},
     {-0x1.3ep-5, 0x1.52p-6, 0x1.aap-8, -0x1.ccp-7},
     {0x1.54p-1, 0x1.dp-1, -0x1.68p-1, -0x1.56p-2},
     {0x403e, 0xc098, 0x3f96, 0x3fbe},
     {{{0x3fc4, 0xbd93, 0xbd7a, 0x3ec2}, {0x3fc4, 0xbd90, 0xbd80, 0x3ec1}},
      {{0x3fc4, 0xbd94, 0xbd76, 0x3ec2}, {0x3fc4, 0xbd90, 0xbd70, 0x3ec1}}}},
    {DYNNORM_DYISRU,
     DYNNORM_F16,
     {0x1.1dcp+1, -0x1.3p+2, -0x1.80cp+0, 0x1.fap-2},
     {0x1.348p-1, 0x1.2bp+1, 0x1.4a4p-2, 0x1.47cp+0},
     {0x1.f64p-7, 0x1.368p-6, 0x1.4e4p-7, -0x1.994p-9},
     {0x1.04cp-2, -0x1.14p-1, 0x1.2e8p-1, -0x1.048p-1},
     {0x41ac, 0xc0d4, 0xbcb9, 0x3f19},
     {{{0x3ca7, 0xbdac, 0xab3e, 0x3455}, {0x3ca7, 0xbdac, 0xab40, 0x3456}},
      {{0x3ca7, 0xbdac, 0xab3c, 0x3455}, {0x3ca7, 0xbdac, 0xab30, 0x3456}}}},
};

static void store_row(unsigned char *elements, dynnorm_type type, const double *values) {
    for (size_t i = 0; i < CHANNELS; i++)
        set_element_at(elements, type, i, values[i]);
}

static int is_row(const char *name, const unsigned char *elements, dynnorm_type type, const uint32_t *expected) {
    for (size_t i = 0; i < CHANNELS; i++) {
        const uint32_t got = load_element(elements, type, i);
        if (got != expected[i]) {
            printf("# %s[%zu]: got %x (%a), expected %x (%a)\n", name, i, got, widened(type, got), expected[i],
                   widened(type, expected[i]));
            return 0;
        }
    }
    return 1;
}

static int check_row(const struct row *row, const struct listed_kernel *kernel, int unrounded, int before_weight) {
    unsigned char x[4 * CHANNELS], residual[4 * CHANNELS], weight[4 * CHANNELS], bias[4 * CHANNELS];
    store_row(x, row->type, row->x);
    store_row(residual, row->type, row->residual);
    store_row(weight, row->type, row->weight);
    store_row(bias, row->type, row->bias);
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = row->operation, call.mode = kernel->mode;
    call.tokens = 1, call.channels = CHANNELS;
    call.eps = 0.5f, call.beta = 2;
    call.weight_offset = 1;
    call.normalize_unrounded_sum = unrounded, call.round_before_weight = before_weight;
    /* as vLLM does, y replaces x, and the sum the residual */
    call.x.data = call.y.data = x;
    call.residual.data = call.sum.data = residual;
    call.weight.data = weight;
    if (dynnorm_operations[row->operation].has_bias)
        call.bias.data = bias;
    call.x.type = call.y.type = call.residual.type = call.sum.type = call.weight.type = call.bias.type = row->type;
    const dynnorm_status status = dynnorm_forward(&call);
    if (status)
        printf("# %s\n", dynnorm_status_string(status));
    return !status && is_row("sum", residual, row->type, row->sum) &&
           is_row("y", x, row->type, row->y[unrounded][before_weight]);
}

static void check_kernel(const struct isa *isa, const struct listed_kernel *kernel) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int variant = 0; variant < 4 && kernel->direction == FORWARD_PASS; variant++)
            if (table[i].operation == kernel->operation)
                tap_check(check_row(&table[i], kernel, variant / 2, variant % 2), "%s %s of %s: R%d, W%d",
                          isa->identifier, kernel->name, element_name(table[i].type), variant / 2, 1 + variant % 2);
}

int main(void) {
    check_each_kernel(check_kernel);
    use_table(NULL);
    return tap_done();
}
