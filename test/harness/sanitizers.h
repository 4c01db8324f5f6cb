/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Which sanitizers the compiler builds in, as gcc and clang say it.
 */
#ifndef DYNNORM_TEST_SANITIZERS_H
#define DYNNORM_TEST_SANITIZERS_H

#ifdef __has_feature
#define SANITIZER_FEATURE(name) __has_feature(name)
#else
#define SANITIZER_FEATURE(name) 0
#endif

#if defined __SANITIZE_ADDRESS__ || SANITIZER_FEATURE(address_sanitizer)
#define ADDRESS_SANITIZED 1
#else
#define ADDRESS_SANITIZED 0
#endif

#if ADDRESS_SANITIZED || defined __SANITIZE_THREAD__ || SANITIZER_FEATURE(thread_sanitizer) ||                         \
    SANITIZER_FEATURE(memory_sanitizer)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#endif
