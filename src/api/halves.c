/* SPDX-License-Identifier: BSD-2-Clause */
#include "api/halves.h"
#include "api/buffers.h"
#include "dispatch/caches.h"
#include "operations.h"
#include "rows/tensor.h"

int dynnorm_forward_is_fused(const dynnorm_descriptor *call) {
    return call->x.type == call->y.type && (call->x.type == DYNNORM_BF16 || call->x.type == DYNNORM_F16) &&
           (!call->residual.data || dynnorm_has_sum_of_one_type(call));
}

/* Their kernels take rows of any alignment, also where they store past the caches. */
static int is_elementwise(const dynnorm_descriptor *call) {
    return dynnorm_operations[call->operation].has_scale;
}

int dynnorm_can_run_halves_kernel(const struct forward_pass *pass) {
    const struct tensor *y = &pass->arguments.y;
    return pass->halves_kernel && y->data &&
           (!pass->arguments.streams || is_elementwise(pass->call) || rows_are_aligned(y, STREAM_ALIGNMENT)) &&
           (!pass->call->residual.data || dynnorm_makes_sum_of_one_type(pass));
}

/* Without x, y and statistics. */
static struct halves_call begin_halves_call(const struct forward_pass *pass, const dynnorm_descriptor *call) {
    const dynnorm_vector parameters = dynnorm_parameters_of_channels(call);
    struct halves_call made = dynnorm_halves_call(call);
    made.x_stride = HALF_BYTES * pass->arguments.x.strides[0];
    made.y_stride = HALF_BYTES * pass->arguments.y.strides[0];
    made.parameters = (struct typed_vector){parameters.data, parameters.type, 0};
    made.parameters.offset = parameters.data ? 0 : pass->arguments.parameter;
    made.streams = pass->arguments.streams && !dynnorm_halves_are_weighed_later(call); /* else y is read once more */
    return made;
}

void dynnorm_run_halves_kernel(const struct forward_pass *pass, const struct tensor *x, size_t row_of_x, size_t row,
                               size_t end, const struct summed_rows *summed) {
    struct halves_call call = begin_halves_call(pass, pass->call);
    call.summed = summed;
    call.x_stride = HALF_BYTES * x->strides[0];
    for (size_t some; row < end; row += some, row_of_x += some) {
        some = dynnorm_rows_on_one_axis(&pass->arguments.y, row, dynnorm_rows_on_one_axis(x, row_of_x, end - row));
        call.x = address_of_row(x, row_of_x);
        call.y = address_of_row(&pass->arguments.y, row);
        call.mean = pass->call->mean ? pass->call->mean + row : NULL;
        call.rstd = pass->call->rstd ? pass->call->rstd + row : NULL;
        pass->halves_kernel(&call, some);
    }
}

int dynnorm_run_prepared_halves(const struct forward_pass *pass, void *y, const void *x,
                                const struct prepared_rows *rows) {
    struct tensor to = pass->arguments.y;
    struct halves_call call = begin_halves_call(pass, &pass->completed);
    const size_t step = rows->count == 1 ? 1 : rows->step, first_y = rows->first * call.y_stride;
    const int has_statistics = pass->arguments.mean || pass->arguments.rstd;
    to.data = y;
    if (!pass->halves_kernel || dynnorm_halves_are_weighed_later(&pass->completed) || !y || to.axes != 1 ||
        pass->arguments.x.axes != 1 || (step != 1 && has_statistics) ||
        (rows->count * call.channels > FEW_ELEMENTS && dynnorm_streams(&pass->completed, &to, rows->count)))
        return 0;
    if (pass->residual.data) {
        if (!dynnorm_sum_few_rows(pass, x, rows))
            return 0;
        x = pass->sum.data;
        call.x_stride = HALF_BYTES * pass->sum.strides[0];
    }
    call.x = (const unsigned char *)x + rows->first * call.x_stride;
    call.y = (unsigned char *)y + first_y;
    call.x_stride *= step;
    call.y_stride *= step;
    call.mean = pass->arguments.mean ? pass->arguments.mean + rows->first : NULL;
    call.rstd = pass->arguments.rstd ? pass->arguments.rstd + rows->first : NULL;
    call.streams = 0;
    pass->halves_kernel(&call, rows->count);
    return 1;
}
