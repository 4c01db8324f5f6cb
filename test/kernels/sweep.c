/* SPDX-License-Identifier: BSD-2-Clause
 *
 * tanh(x) and q = x / sqrt(beta + x^2), as every table and mode computes them, for all 2^32 floats x:
 *
 *     sweep [--stride N] [--threads N] [--table NAME] [--only tanh|BETA|derivative] [--markdown]
 *
 * prints, for each, the greatest error in ULP of the exact result and where it is, the greatest relative error, how
 * many steps from one float to the next fall, where the function is not odd or goes beyond +-1, and where it is wrong
 * for an infinity or a NaN. With an odd stride N only one run of 16 neighbouring floats in N is tried; the rest of the
 * job is the same. --markdown prints a table instead of test results.
 *
 * Last comes what DyT's backward pass computes by itself, in the portable and the sleef mode: tanh and its derivative,
 * for all floats from 2^-21 to 32 and their negatives. --threads does nothing for these, and --markdown leaves them
 * out. --only picks the first tanh, q of one beta, or these two.
 *
 * The reference is computed in double: it is good to 2^-27 ULP or so.
 */
#include "bounds.h"
#include "call.h"
#include "float_bits.h"
#include "tap.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { RUN = 16, CHUNK = 4096, KERNELS_AT_MOST = 64, THREADS_AT_MOST = 256 };

/* What is swept: tanh, or q of one beta. */
struct job {
    enum scalar_function function;
    float beta;
};

static const struct job jobs[] = {
    {FUNCTION_TANH, 0},       {FUNCTION_ISRU, 1e-45f}, {FUNCTION_ISRU, 1e-30f}, {FUNCTION_ISRU, 1e-3f},
    {FUNCTION_ISRU, 1},       {FUNCTION_ISRU, 300},    {FUNCTION_ISRU, 1e10f},  {FUNCTION_ISRU, 1e30f},
    {FUNCTION_ISRU, FLT_MAX}, {FUNCTION_ISRU, 0},
};

/* A kernel of a table. */
struct candidate {
    const struct isa *isa;
    const struct listed_kernel *kernel;
    forward_kernel *run;
};

struct findings {
    uint64_t inputs;
    double ulp;
    float where;     /* the x of that error */
    double relative; /* the greatest relative error of a result that is a normal float, in u */
    uint64_t falling;
    uint64_t not_odd;
    uint64_t beyond_one;
    uint64_t wrong_special;
};

/* The part of a job that one thread does: the positive floats of numbers [first, last), and their negatives. */
struct part {
    struct job job;
    uint64_t stride;
    uint64_t first;
    uint64_t last;
    size_t candidate_count;
    const struct candidate *candidates;
    struct findings findings[KERNELS_AT_MOST];
};

/* The bits of a float by its number in the sweep. The sweep consists of runs of RUN neighbours, stride runs apart. */
static uint64_t bits_of_number(uint64_t number, uint64_t stride) {
    return number / RUN * RUN * stride + number % RUN;
}

/* How many floats the sweep has: a multiple of RUN. */
static uint64_t count_numbers(uint64_t stride) {
    uint64_t runs = (UINT64_C(1) << 31) / RUN;
    return (runs + stride - 1) / stride * RUN;
}

/* The exact results for count positive x, and 1 / ULP of each. */
static void compute_reference(const struct job *job, size_t count, const float *x, double *exact, double *per_ulp) {
    double beta = (double)job->beta;
    if (job->function == FUNCTION_TANH)
        for (size_t i = 0; i < count; i++)
            exact[i] = tanh((double)x[i]);
    else
        for (size_t i = 0; i < count; i++) {
            double q = (double)x[i] / sqrt(beta + (double)x[i] * (double)x[i]);
            q = x[i] == 0 ? 0 : q;
            exact[i] = x[i] > FLT_MAX ? 1 : q;
        }
    for (size_t i = 0; i < count; i++) {
        uint64_t exponent = bits_of_double(exact[i]) >> 52;
        exponent = exponent < 1023 - 126 ? 1023 - 126 : exponent;
        per_ulp[i] = double_of_bits((2 * 1023 + 23 - exponent) << 52); /* 2^(23 - exponent) */
    }
}

/* What one chunk shows. y[0] are the results of the x, y[1] those of their negatives; previous is the result of the
 * float before the chunk. */
static struct findings examine(size_t count, const float *x, const double *exact, const double *per_ulp,
                               float y[2][CHUNK], float previous, int zeros_have_signs) {
    struct findings findings = {.inputs = 2 * count, .where = x[0]};
    double worst[RUN] = {0}, worst_relative[RUN] = {0}; /* arrays, so that the compiler can use vectors */
    for (size_t run = 0; run < count; run += RUN)
        for (size_t i = 0; i < RUN; i++) {
            double error = fabs((double)y[0][run + i] - exact[run + i]), ulp = error * per_ulp[run + i];
            double relative = exact[run + i] >= (double)FLT_MIN ? error / exact[run + i] : 0;
            worst[i] = ulp > worst[i] ? ulp : worst[i];
            worst_relative[i] = relative > worst_relative[i] ? relative : worst_relative[i];
        }
    for (size_t i = 0; i < RUN; i++) {
        findings.ulp = fmax(findings.ulp, worst[i]);
        findings.relative = fmax(findings.relative, worst_relative[i] / UNIT_ROUNDOFF);
    }
    for (size_t i = 0; i < count; i++)
        if (fabs((double)y[0][i] - exact[i]) * per_ulp[i] == findings.ulp)
            findings.where = x[i];

    uint32_t falling = y[0][0] < previous;
    uint32_t not_odd = 0;
    uint32_t beyond_one = 0;
    for (size_t i = 1; i < count; i++)
        falling += y[0][i] < y[0][i - 1];
    for (size_t i = 0; i < count; i++) {
        const int are_zeros = !zeros_have_signs && y[0][i] == 0 && y[1][i] == 0;
        not_odd += bits_of_float(y[0][i]) != (bits_of_float(y[1][i]) ^ 0x80000000) && !are_zeros && x[i] <= INFINITY;
        beyond_one += (fabsf(y[0][i]) > 1) + (fabsf(y[1][i]) > 1);
    }
    findings.falling = falling;
    findings.not_odd = not_odd;
    findings.beyond_one = beyond_one;
    for (size_t i = 0; i < count; i++) {
        int right = x[i] <= FLT_MAX ? !isnan(y[0][i])
                    : isinf(x[i])   ? y[0][i] == 1 && y[1][i] == -1
                                    : isnan(y[0][i]) && isnan(y[1][i]);
        findings.wrong_special += !right;
    }
    return findings;
}

static void add_findings(struct findings *sum, const struct findings *findings) {
    sum->inputs += findings->inputs;
    if (findings->ulp > sum->ulp) {
        sum->ulp = findings->ulp;
        sum->where = findings->where;
    }
    sum->relative = fmax(sum->relative, findings->relative);
    sum->falling += findings->falling;
    sum->not_odd += findings->not_odd;
    sum->beyond_one += findings->beyond_one;
    sum->wrong_special += findings->wrong_special;
}

static void *allocate(size_t size) {
    void *memory = calloc(1, size);
    if (!memory)
        abort();
    return memory;
}

static void *sweep_part(void *argument) {
    struct part *part = argument;
    float(*x)[CHUNK] = allocate(2 * sizeof *x);
    float(*y)[2][CHUNK] = allocate(part->candidate_count * sizeof *y);
    double *exact = allocate(CHUNK * sizeof *exact);
    double *per_ulp = allocate(CHUNK * sizeof *per_ulp);
    float previous[KERNELS_AT_MOST];
    struct findings found[KERNELS_AT_MOST];
    for (size_t k = 0; k < part->candidate_count; k++)
        previous[k] = -1;

    /* Begin one run early, to see the step to the first float of the part. */
    for (uint64_t number = part->first ? part->first - RUN : 0; number < part->last; number += CHUNK) {
        size_t count = part->last - number < CHUNK ? (size_t)(part->last - number) : CHUNK;
        for (size_t i = 0; i < count; i++) {
            uint64_t bits = bits_of_number(number + i, part->stride);
            x[0][i] = float_of_bits((uint32_t)bits);
            x[1][i] = -x[0][i];
        }
        compute_reference(&part->job, count, x[0], exact, per_ulp);
        for (size_t k = 0; k < part->candidate_count; k++) {
            struct forward_arguments arguments = {
                .x = {.data = x[0], .axes = 1, .strides = {CHUNK}},
                .y = {.data = y[k][0], .axes = 1, .strides = {CHUNK}},
                .parameter = part->job.function == FUNCTION_TANH ? 1 : part->job.beta,
                .scale = 1,
                .channels = count,
            };
            part->candidates[k].run(&arguments, 0, 2);
            /* Candidates of one mode should all compute the same bits; those that do need not be examined again. */
            const dynnorm_mode mode = part->candidates[k].kernel->mode;
            size_t same = 0;
            while (same < k && (part->candidates[same].kernel->mode != mode || previous[same] != previous[k] ||
                                memcmp(y[same], y[k], sizeof y[k]) != 0))
                same++;
            const int zeros_have_signs = mode != DYNNORM_NATIVE || part->job.function == FUNCTION_TANH;
            found[k] =
                same < k ? found[same] : examine(count, x[0], exact, per_ulp, y[k], previous[k], zeros_have_signs);
            add_findings(&part->findings[k], &found[k]);
        }
        for (size_t k = 0; k < part->candidate_count; k++)
            previous[k] = y[k][0][count - 1];
    }
    free(x);
    free(y);
    free(exact);
    free(per_ulp);
    return NULL;
}

/* Finds the kernels that compute a job's function. Reports those that cannot be run as skipped. */
static size_t find_candidates(const struct job *job, const char *table, struct candidate *candidates, int report) {
    dynnorm_operation operation = job->function == FUNCTION_TANH ? DYNNORM_DYT : DYNNORM_DYISRU;
    size_t count = 0;
    for (size_t i = 0; i < dynnorm_isa_count; i++)
        for (size_t k = 0; k < listed_kernel_count; k++) {
            const struct isa *isa = &dynnorm_isa_list[i];
            const struct listed_kernel *kernel = &listed_kernels[k];
            if (kernel->operation != operation || kernel->direction != FORWARD_PASS ||
                (table && strcmp(table, isa->identifier) != 0))
                continue;
            const char *why = why_kernel_is_unavailable(isa, kernel);
            if (why && report)
                tap_skip(kernel->name, why);
            if (why)
                continue;
            if (count == KERNELS_AT_MOST)
                abort();
            candidates[count].isa = isa;
            candidates[count].kernel = kernel;
            candidates[count].run = dynnorm_forward_kernel(isa->kernels, operation, kernel->mode);
            count++;
        }
    return count;
}

static void sweep(const struct job *job, uint64_t stride, size_t threads, const char *table, int markdown) {
    static struct part parts[THREADS_AT_MOST];
    struct candidate candidates[KERNELS_AT_MOST];
    pthread_t handles[THREADS_AT_MOST];
    size_t candidate_count = find_candidates(job, table, candidates, !markdown);
    uint64_t numbers = count_numbers(stride);
    memset(parts, 0, sizeof parts);
    for (size_t t = 0; t < threads; t++) {
        parts[t].job = *job;
        parts[t].stride = stride;
        parts[t].first = numbers / RUN * t / threads * RUN;
        parts[t].last = numbers / RUN * (t + 1) / threads * RUN;
        parts[t].candidate_count = candidate_count;
        parts[t].candidates = candidates;
        if (t > 0 && pthread_create(&handles[t], NULL, sweep_part, &parts[t]) != 0)
            abort();
    }
    sweep_part(&parts[0]);
    for (size_t t = 1; t < threads; t++)
        pthread_join(handles[t], NULL);

    for (size_t k = 0; k < candidate_count; k++) {
        struct findings all;
        memset(&all, 0, sizeof all);
        for (size_t t = 0; t < threads; t++)
            add_findings(&all, &parts[t].findings[k]);
        const struct ulp_bound *bound = &ulp_bounds[job->function];
        dynnorm_mode mode = candidates[k].kernel->mode;
        int is_monotone = job->function == FUNCTION_TANH && mode == DYNNORM_PORTABLE;
        char name[100];
        if (job->function == FUNCTION_TANH)
            snprintf(name, sizeof name, "%s", bound->name);
        else
            snprintf(name, sizeof name, "%s, beta %g", bound->name, (double)job->beta);
        if (markdown)
            printf("| %s | %s | %s | %.3f | %.9g | %.3f | %llu | %llu | %llu |\n", name,
                   candidates[k].kernel->mode_name, candidates[k].isa->identifier, all.ulp, (double)all.where,
                   all.relative, (unsigned long long)all.falling, (unsigned long long)all.not_odd,
                   (unsigned long long)all.beyond_one);
        else
            tap_check(all.ulp <= bound->ulp[mode] && all.relative <= bound->in_u[mode] &&
                          !(is_monotone && all.falling) && !all.not_odd && !all.beyond_one && !all.wrong_special,
                      "%s, %s, %s: %llu inputs, at most %.3f ULP (x = %.9g) of %g, %.3f u of %g, falling steps %llu%s, "
                      "not odd %llu, beyond +-1 %llu, infinity or NaN wrong %llu",
                      name, candidates[k].kernel->mode_name, candidates[k].isa->identifier,
                      (unsigned long long)all.inputs, all.ulp, (double)all.where, bound->ulp[mode], all.relative,
                      bound->in_u[mode], (unsigned long long)all.falling, is_monotone ? "" : " (allowed)",
                      (unsigned long long)all.not_odd, (unsigned long long)all.beyond_one,
                      (unsigned long long)all.wrong_special);
    }
    fflush(stdout);
}

/* ---- The backward pass of DyT ------------------------------------------------------------------------------------ */

/* The greatest errors, as bounds.h has them. docs/bounds.md counts with these two. */
struct gradient_findings {
    uint64_t inputs;
    double tanh;
    double derivative;
};

static void examine_gradients(struct gradient_findings *findings, size_t count, const float *z, const float *got_tanh,
                              const float *got_derivative) {
    findings->inputs += count;
    for (size_t i = 0; i < count; i++) {
        const double exact = tanh((double)z[i]), cosine = cosh((double)z[i]), derivative = 1 / (cosine * cosine);
        const double magnitude = fabs((double)z[i]);
        const double of_tanh = fabs(((double)got_tanh[i] - exact) / exact) / UNIT_ROUNDOFF,
                     of_derivative = fabs((double)got_derivative[i] - derivative) / derivative / UNIT_ROUNDOFF;
        findings->tanh = fmax(findings->tanh, of_tanh + magnitude * derivative / fabs(exact));
        findings->derivative = fmax(findings->derivative, of_derivative + 2 * magnitude * fabs(exact) - 4 * magnitude);
    }
}

/* With alpha, the scale, the weight and dy of 1, and one token, dweight is tanh(x), and dx its derivative. */
static void examine_kernel(struct gradient_findings *findings, const struct listed_kernel *kernel, uint64_t stride) {
    const uint64_t first = bits_of_float(0x1p-21f), count = bits_of_float(32) - first + 1;
    static float x[CHUNK], dy[CHUNK], dx[CHUNK], dweight[CHUNK];
    dynnorm_descriptor call = describe(kernel, 1, 0);
    call.x.data = x, call.dy.data = dy, call.dx.data = dx, call.dweight.data = dweight;
    call.weight.data = call.bias.data = call.dbias.data = NULL;
    call.dalpha = NULL;
    call.alpha = call.scale = 1;
    for (size_t i = 0; i < CHUNK; i++)
        dy[i] = 1;
    for (int sign = -1; sign < 2; sign += 2)
        for (uint64_t run = 0; run * RUN < count; run += stride) {
            for (uint64_t number = run * RUN; number < (run + 1) * RUN && number < count; number++)
                x[call.channels++] = (float)sign * float_of_bits((uint32_t)(first + number));
            if (call.channels + RUN <= CHUNK && (run + stride) * RUN < count)
                continue;
            if (run_call(BACKWARD_PASS, &call) != DYNNORM_OK)
                abort();
            examine_gradients(findings, call.channels, x, dweight, dx);
            call.channels = 0;
        }
}

static void sweep_gradients(uint64_t stride, const char *table) {
    for (size_t i = 0; i < dynnorm_isa_count; i++)
        for (size_t k = 0; k < listed_kernel_count; k++) {
            const struct isa *isa = &dynnorm_isa_list[i];
            const struct listed_kernel *kernel = &listed_kernels[k];
            if (kernel->operation != DYNNORM_DYT || kernel->direction != BACKWARD_PASS ||
                kernel->mode == DYNNORM_NATIVE || (table && strcmp(table, isa->identifier) != 0))
                continue;
            const char *why = use_table(isa) ? why_kernel_is_unavailable(isa, kernel) : TABLE_IS_UNAVAILABLE;
            if (why) {
                tap_skip(kernel->name, why);
                continue;
            }
            struct gradient_findings findings = {0, 0, 0};
            examine_kernel(&findings, kernel, stride);
            tap_check(findings.tanh <= BOUND_OF_BACKWARD_TANH && findings.derivative <= BOUND_OF_BACKWARD_DERIVATIVE,
                      "%s, %s: %llu inputs, tanh and the rounding of z at most %.3f u of %g, its derivative %.3f u of "
                      "%g, and 4 |z|",
                      kernel->name, isa->identifier, (unsigned long long)findings.inputs, findings.tanh,
                      BOUND_OF_BACKWARD_TANH, findings.derivative, BOUND_OF_BACKWARD_DERIVATIVE);
        }
}

static int is_chosen(const struct job *job, const char *only) {
    if (!strcmp(only, "tanh"))
        return job->function == FUNCTION_TANH;
    char *end;
    float beta = strtof(only, &end);
    return job->function == FUNCTION_ISRU && job->beta == beta && !*end;
}

int main(int count, char **arguments) {
    uint64_t stride = 1;
    size_t threads = 1;
    const char *table = NULL;
    const char *only = NULL;
    int markdown = 0;
    for (int i = 1; i < count; i++) {
        const char *value = i + 1 < count ? arguments[i + 1] : "";
        if (!strcmp(arguments[i], "--markdown"))
            markdown = 1;
        else if (!strcmp(arguments[i], "--stride") && (strtoull(value, NULL, 10) & 1))
            stride = strtoull(arguments[++i], NULL, 10);
        else if (!strcmp(arguments[i], "--threads") && strtoull(value, NULL, 10) - 1 < THREADS_AT_MOST)
            threads = (size_t)strtoull(arguments[++i], NULL, 10);
        else if (!strcmp(arguments[i], "--table") && *value)
            table = arguments[++i];
        else if (!strcmp(arguments[i], "--only") && *value)
            only = arguments[++i];
        else {
            fprintf(stderr,
                    "usage: %s [--stride N] [--threads N] [--table NAME] [--only tanh|BETA|derivative] "
                    "[--markdown]; the stride is odd\n",
                    arguments[0]);
            return 2;
        }
    }
    if (thinned())
        stride *= 31;
    if (markdown)
        printf(
            "| function | mode | table | greatest error in ULP | at x | in u | falling steps | not odd | beyond +-1 |\n"
            "|---|---|---|---|---|---|---|---|---|\n");
    size_t done = 0;
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        if (!only || is_chosen(&jobs[i], only)) {
            sweep(&jobs[i], stride, threads, table, markdown);
            done++;
        }
    if (!markdown && (!only || !strcmp(only, "derivative"))) {
        sweep_gradients(stride, table);
        done++;
    }
    if (!done) {
        fprintf(stderr, "%s: nothing is swept for %s\n", arguments[0], only);
        return 2;
    }
    return markdown ? 0 : tap_done();
}
