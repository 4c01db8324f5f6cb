/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The statuses in words, and the version.
 */
#include "dynnorm.h"
#include "inlining.h"

const char *dynnorm_version(void) {
    return DYNNORM_VERSION_STRING;
}

FOR_SIZE const char *dynnorm_status_string(dynnorm_status status) {
    switch (status) {
    case DYNNORM_OK:
        return "success";
    case DYNNORM_ERROR_NULL_DESCRIPTOR:
        return "the descriptor is NULL";
    case DYNNORM_ERROR_DESCRIPTOR:
        return "the descriptor's size is unknown: it was not begun with DYNNORM_DESCRIPTOR_INIT, or the program is for "
               "a later version of the library";
    case DYNNORM_ERROR_ZERO_CHANNELS:
        return "channels is 0";
    case DYNNORM_ERROR_OPERATION:
        return "the operation is unknown, or not one for this function";
    case DYNNORM_ERROR_UNUSED_BUFFER:
        return "a buffer is given that the operation does not use";
    case DYNNORM_ERROR_MODE:
        return "the numerics mode is unknown";
    case DYNNORM_ERROR_MODE_UNAVAILABLE:
        return "the numerics mode is not available in this build or on this CPU";
    case DYNNORM_ERROR_TYPE:
        return "an element type is unknown or not supported";
    case DYNNORM_ERROR_SIZE_OVERFLOW:
        return "a tensor exceeds the address space";
    case DYNNORM_ERROR_AXES:
        return "there are more than 3 axes, or their rows do not make up the tokens, or strides are given for no axes";
    case DYNNORM_ERROR_STRIDE:
        return "rows of an output overlap one another";
    case DYNNORM_ERROR_EPS:
        return "eps is negative, infinite or NaN";
    case DYNNORM_ERROR_ALPHA:
        return "alpha is infinite or NaN";
    case DYNNORM_ERROR_BETA:
        return "beta is negative, infinite or NaN";
    case DYNNORM_ERROR_SCALE:
        return "scale is infinite or NaN";
    case DYNNORM_ERROR_WEIGHT_OFFSET:
        return "weight_offset is infinite or NaN";
    case DYNNORM_ERROR_NO_OUTPUT:
        return "all outputs are NULL";
    case DYNNORM_ERROR_NULL_POINTER:
        return "a required pointer is NULL";
    case DYNNORM_ERROR_OVERLAP:
        return "two buffers overlap that must not";
    case DYNNORM_ERROR_ROW_RANGE:
        return "the range of rows exceeds the tokens, or its step is 0";
    case DYNNORM_ERROR_ROW_BLOCK:
        return "the range of rows is not made of whole blocks";
    case DYNNORM_ERROR_WORKSPACE_MISSING:
        return "no workspace is given, and ranges of rows need one";
    case DYNNORM_ERROR_WORKSPACE_TOO_SMALL:
        return "the workspace is smaller than dynnorm_workspace_size says";
    case DYNNORM_ERROR_OUT_OF_MEMORY:
        return "there is not enough memory for the call";
    case DYNNORM_ERROR_ISA_UNKNOWN:
        return "the instruction set is unknown";
    case DYNNORM_ERROR_ISA_UNAVAILABLE:
        return "the instruction set is not available in this build, or on this CPU or operating system";
    case DYNNORM_ERROR_LEFT_OUT:
        return "this build of the library leaves out the operation, this pass of it, or something else that the call "
               "needs";
    case DYNNORM_ERROR_OUTPUT_SCALE:
        return "y_scale or y_scales is missing, not wanted, or out of range";
    case DYNNORM_ERROR_EXECUTOR:
        return "the executor has no threads or no parallel_for";
    case DYNNORM_ERROR_PREPARED:
        return "the prepared call is NULL, was not prepared, or its size is unknown; was it begun with "
               "DYNNORM_PREPARED_INIT?";
    case DYNNORM_ERROR_SPLIT:
        return "the split is NULL, its size is unknown, its parts are not those of the call, or the call has what rows "
               "that are split cannot have";
    case DYNNORM_ERROR_RESIDUAL:
        return "a backward call has a residual or its sum, and x is not that sum";
    }
    return "unknown status";
}
