/* SPDX-License-Identifier: BSD-2-Clause
 *
 * One progress bar on stderr, with the time left, for work that takes several passes. Nothing is shown if stderr is not
 * a terminal.
 *
 * Work is counted in units of the caller's choice. Work that is still to come may be a guess, which each pass corrects.
 * The bar never goes back.
 */
#ifndef DYNNORM_CALIBRATE_PROGRESS_H
#define DYNNORM_CALIBRATE_PROGRESS_H

/* Begins the next pass: the work that it takes, and all work expected after it. */
void progress_pass(double work, double work_after);

/* Shows that a part of the pass is done, from 0 to 1. */
void progress_show(double part);

/* Removes the bar, so that something else can be printed. It comes back with the next pass. */
void progress_remove(void);

#endif
