/* SPDX-License-Identifier: BSD-2-Clause */
#include "google_benchmark_shim.h"

#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

static benchmark::State &state_of(benchmark_state *state) {
    return *reinterpret_cast<benchmark::State *>(state);
}

int benchmark_initialize(int *argc, char **argv) {
    benchmark::Initialize(argc, argv);
    return !benchmark::ReportUnrecognizedArguments(*argc, argv);
}

void benchmark_add_context(const char *key, const char *value) {
    benchmark::AddCustomContext(key, value);
}

size_t benchmark_cache_bytes(int level) {
    for (const auto &cache : benchmark::CPUInfo::Get().caches)
        if (cache.level == level && cache.type != "Instruction")
            return static_cast<size_t>(cache.size);
    return 0;
}

void benchmark_register(const char *name, benchmark_clock clock, benchmark_function *function, const void *context,
                        size_t context_size) {
    auto begin = static_cast<const char *>(context);
    auto copy = std::make_shared<std::vector<char>>(begin, begin + context_size);
    auto registered = benchmark::RegisterBenchmark(
        name, [=](benchmark::State &state) { function(reinterpret_cast<benchmark_state *>(&state), copy->data()); });
    if (clock == BENCHMARK_WALL_TIME)
        registered->UseRealTime();
}

void benchmark_measure(benchmark_state *state, void (*work)(void *), void *context) {
    for (auto _ : state_of(state))
        work(context);
}

void benchmark_set_rate(benchmark_state *state, const char *name, double amount_per_iteration) {
    state_of(state).counters[name] =
        benchmark::Counter(amount_per_iteration, benchmark::Counter::kIsIterationInvariantRate);
}

void benchmark_set_value(benchmark_state *state, const char *name, double value) {
    state_of(state).counters[name] = benchmark::Counter(value);
}

void benchmark_fail(benchmark_state *state, const char *why) {
    state_of(state).SkipWithError(why);
}

size_t benchmark_run(void) {
    return benchmark::RunSpecifiedBenchmarks();
}

void benchmark_shutdown(void) {
    benchmark::Shutdown();
}
