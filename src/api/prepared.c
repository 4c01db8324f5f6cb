/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Prepared calls. The arithmetic of one row takes tens of nanoseconds, so running one row of a usual call does little
 * more than to hand the row to the kernel for one row.
 */
#include "api/buffered_forward.h"
#include "api/halves.h"
#include "api/residual.h"
#include "api/descriptor.h"
#include "api/passes.h"
#include "dispatch/caches.h"
#include "dispatch/dispatch.h"
#include "inlining.h"
#include "rows/tensor.h"

#include <string.h>

/* Which kernel for one row there is. */
enum row_kernel { NO_ROW_KERNEL, LAYERNORM_ROW, RMSNORM_ROW, ELEMENTWISE_ROW };

/* A call whose rows can be handed to it. The kernels for one row take the arguments of a plain call. */
struct row_call {
    enum row_kernel kind;
    union {
        layernorm_call *layernorm;
        rmsnorm_call *rmsnorm;
        dyt_call *elementwise;
    } kernel;
    size_t x_stride;
    size_t y_stride;
    const float *weight;
    const float *bias;
    float *mean;
    float *rstd;
    float parameter; /* or eps */
    float scale;
    size_t channels;
};

/* What is in a dynnorm_prepared. It may alias the numbers that the header declares. What is needed for one row comes
   first, to lie in as few cache lines as possible. */
struct __attribute__((may_alias)) prepared {
    size_t size;
    size_t tokens;
    forward_kernel *kernel; /* NULL until the call is prepared */
    struct row_call row;
    struct row_call row_of_sums; /* of a call with a residual, in place of the above: its x is the sum */
    struct forward_pass pass; /* without its call, which is in completed, without the data of x and y, and without what
                                 is stored past the caches */
};

_Static_assert(sizeof(struct prepared) <= sizeof(dynnorm_prepared), "a prepared call needs more room");
_Static_assert(_Alignof(struct prepared) <= _Alignof(dynnorm_prepared), "a prepared call needs more alignment");

/* ---- Preparation ---- */

RARE void choose_row_kernel(struct row_call *row, const struct forward_pass *pass, int is_buffered, size_t x_stride) {
    const struct forward_arguments *arguments = &pass->arguments;
    const struct kernels *kernels = pass->kernels;
    const dynnorm_operation operation = pass->call->operation;
    *row = (struct row_call){.x_stride = x_stride,
                             .y_stride = arguments->y.strides[0],
                             .weight = arguments->weight,
                             .bias = arguments->bias,
                             .mean = arguments->mean,
                             .rstd = arguments->rstd,
                             .parameter = dynnorm_operations[operation].has_eps ? arguments->eps : arguments->parameter,
                             .scale = arguments->scale,
                             .channels = arguments->channels};
    /* These kernels are those of plain calls with nothing unusual about them. */
    if (is_buffered || dynnorm_parameters_of(pass->call).data ||
        pass->kernel != kernels->forward[operation][DYNNORM_PORTABLE] || arguments->x.axes != 1 ||
        arguments->y.axes != 1 || !row->weight || arguments->weight_offset != 0 ||
        (dynnorm_operations[operation].has_bias && !row->bias))
        return;
    if (operation == DYNNORM_LAYERNORM) {
        row->kind = LAYERNORM_ROW;
        row->kernel.layernorm = kernels->layernorm_row;
    } else if (operation == DYNNORM_RMSNORM) {
        row->kind = RMSNORM_ROW;
        row->kernel.rmsnorm = kernels->rmsnorm_row;
    } else if (operation == DYNNORM_DYT || operation == DYNNORM_DYISRU) {
        row->kind = ELEMENTWISE_ROW;
        row->kernel.elementwise = operation == DYNNORM_DYT ? kernels->dyt_row : kernels->dyisru_row;
    }
}

dynnorm_status dynnorm_prepare_forward(const dynnorm_descriptor *call, dynnorm_prepared *prepared) {
    struct forward_pass pass;
    struct mistake mistake;
    dynnorm_status status = dynnorm_begin_prepared(call, &pass, &mistake);
    if (status)
        return status;
    if (!prepared || prepared->size != sizeof *prepared)
        return DYNNORM_ERROR_PREPARED;
    struct prepared *made = (struct prepared *)prepared;
    choose_row_kernel(&made->row, &pass, pass.is_buffered, pass.arguments.x.strides[0]);
    made->row_of_sums.kind = NO_ROW_KERNEL;
    if (HAS_TYPES && pass.residual.data) {
        dynnorm_descriptor norm = *pass.call;
        norm.residual.data = NULL;
        choose_row_kernel(&made->row_of_sums, &pass, dynnorm_forward_is_buffered(&norm), pass.sum.strides[0]);
    }
    made->tokens = pass.call->tokens;
    made->kernel = pass.kernel;
    made->pass = pass;
    return DYNNORM_OK;
}

/* ---- Running ---- */

INLINE dynnorm_status run_row(const struct row_call *row, float *y, const float *x, size_t number) {
    const size_t one = 1;
    float *const mean = row->mean ? row->mean + number : NULL;
    float *const rstd = row->rstd ? row->rstd + number : NULL;
    y += number * row->y_stride;
    x += number * row->x_stride;
    if (row->kind == RMSNORM_ROW)
        return row->kernel.rmsnorm(y, rstd, x, row->weight, row->parameter, one, row->channels);
    if (row->kind == LAYERNORM_ROW)
        return row->kernel.layernorm(y, mean, rstd, x, row->weight, row->bias, row->parameter, one, row->channels);
    return row->kernel.elementwise(y, x, row->weight, row->bias, row->parameter, row->scale, one, row->channels);
}

static int are_in_range(const struct prepared_rows *rows, size_t tokens) {
    return rows->first < tokens &&
           (rows->count == 1 || (rows->step && rows->count - 1 <= (tokens - 1 - rows->first) / rows->step));
}

/* Rows that lie a step apart are the rows of a tensor with longer strides. The statistics of a call have none. */
static int can_lengthen_strides(const struct forward_arguments *arguments) {
    return arguments->x.axes == 1 && arguments->y.axes == 1 && !arguments->mean && !arguments->rstd;
}

static void lengthen_strides(struct tensor *tensor, const struct prepared_rows *rows) {
    if (tensor->data)
        tensor->data += rows->first * tensor->strides[0];
    tensor->strides[0] *= rows->step;
}

/* By the kernel for any rows. */
OUTLINED void run_any_rows(const struct prepared *prepared, float *y, const float *x,
                           const struct prepared_rows *rows) {
    struct forward_arguments arguments = prepared->pass.arguments;
    memcpy(&arguments.x.data, &x, sizeof x); /* which is only read */
    arguments.y.data = y;
    arguments.streams = y != x && dynnorm_streams(&prepared->pass.completed, &arguments.y, rows->count);
    arguments.rows_are_far = dynnorm_rows_are_far(&prepared->pass.completed, &arguments.y, rows->count);
    if (rows->step == 1 || rows->count == 1) {
        prepared->kernel(&arguments, rows->first, rows->count);
    } else if (can_lengthen_strides(&arguments)) {
        lengthen_strides(&arguments.x, rows);
        lengthen_strides(&arguments.y, rows);
        prepared->kernel(&arguments, 0, rows->count);
    } else {
        for (size_t i = 0; i < rows->count; i++)
            prepared->kernel(&arguments, rows->first + i * rows->step, 1);
    }
}

/* With a copy of the whole call: through buffers, or with an alpha or beta that is read anew. */
RARE dynnorm_status run_copied_rows(const struct prepared *prepared, void *y, const void *x,
                                    const struct prepared_rows *rows) {
    struct forward_pass pass = prepared->pass;
    struct mistake mistake;
    pass.call = &pass.completed;
    dynnorm_status status = dynnorm_read_parameter(pass.call, pass.kernels, &pass.arguments.parameter, &mistake);
    if (status)
        return status;
    memcpy(&pass.completed.x.data, &x, sizeof x);
    pass.completed.y.data = pass.arguments.y.data = y;
    pass.arguments.x.data = pass.completed.x.data;
    pass.arguments.streams = dynnorm_streams(pass.call, &pass.arguments.y, rows->count);
    pass.arguments.rows_are_far = dynnorm_rows_are_far(pass.call, &pass.arguments.y, rows->count);
    pass.streams_sum = HAS_TYPES && dynnorm_sum_goes_past_caches(&pass, rows->count);
    return dynnorm_run_forward(&pass, rows->first, rows->count, rows->step);
}

OUTLINED dynnorm_status run_rows(const struct prepared *prepared, float *y, const float *x,
                                 const struct prepared_rows *rows) {
    /* As measured with AVX-512: until then the kernel for any rows takes longer to begin and to end than these rows
       take one by one. With a residual the other way takes 0.1 to 0.3 microseconds more, for rows of any length. */
    enum { FEW_ROWS = 4, ELEMENTS_OF_FEW_ROWS = 2048 };
    const struct forward_arguments *arguments = &prepared->pass.arguments;
    dynnorm_status status = DYNNORM_OK;
    if (!rows->count)
        return DYNNORM_OK;
    if (!are_in_range(rows, prepared->tokens))
        return DYNNORM_ERROR_ROW_RANGE;
    if (!x)
        return DYNNORM_ERROR_NULL_POINTER;
    if (!y && !prepared->pass.sum.data && !arguments->mean && !arguments->rstd)
        return DYNNORM_ERROR_NO_OUTPUT;
    const int reads_parameter =
        dynnorm_parameters_of(&prepared->pass.completed).data && !prepared->pass.completed.parameter_per_channel;
    if (HAS_TYPES && prepared->pass.halves_kernel && !reads_parameter &&
        dynnorm_run_prepared_halves(&prepared->pass, y, x, rows))
        return DYNNORM_OK;
    if (HAS_TYPES && prepared->row_of_sums.kind != NO_ROW_KERNEL && y && rows->count <= FEW_ROWS &&
        dynnorm_sum_few_rows(&prepared->pass, x, rows)) {
        for (size_t i = 0; i < rows->count && !status; i++)
            status = run_row(&prepared->row_of_sums, y, prepared->pass.sum.data, rows->first + i * rows->step);
        return status;
    }
    if (prepared->pass.is_buffered || dynnorm_parameters_of(&prepared->pass.completed).data)
        return run_copied_rows(prepared, y, x, rows);
    if (rows->count > FEW_ROWS || rows->count * arguments->channels > ELEMENTS_OF_FEW_ROWS || !y ||
        prepared->row.kind == NO_ROW_KERNEL) {
        run_any_rows(prepared, y, x, rows);
        return DYNNORM_OK;
    }
    for (size_t i = 0; i < rows->count && !status; i++)
        status = dynnorm_forward_prepared((const dynnorm_prepared *)prepared, y, x, rows->first + i * rows->step, 1, 1);
    return status;
}

OF_ONE_TOKEN
dynnorm_status dynnorm_forward_prepared(const dynnorm_prepared *prepared, void *y, const void *x, size_t first_row,
                                        size_t rows, size_t step) {
    const struct prepared *call = (const struct prepared *)prepared;
    if (!call || call->size != sizeof *prepared || !call->kernel)
        return DYNNORM_ERROR_PREPARED;
    if ((int)(rows == 1) & (int)(first_row < call->tokens) & (int)(call->row.kind != NO_ROW_KERNEL) & (int)(y != NULL) &
        (int)(x != NULL))
        return run_row(&call->row, y, x, first_row);
    return run_rows(call, y, x, &(const struct prepared_rows){first_row, rows, step});
}
