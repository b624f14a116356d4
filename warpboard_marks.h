/* Mark the steps of a C or C++ program and the phases inside them, for `warpboard profile`.
 *
 *   #include "warpboard_marks.h"
 *
 *   for (int i = 0; i < steps; ++i) {
 *     warpboard_step_begin(i);
 *     warpboard_phase_begin("solve");
 *     ...
 *     warpboard_phase_end();
 *     warpboard_step_end();
 *   }
 *
 * The marks are NVTX ranges (header only, part of the CUDA toolkit): they cost some nanoseconds where
 * no tool listens. Compile with -DWARPBOARD_NO_MARKS to leave them out. Free to use without the rest
 * of Warpboard.
 */
#ifndef WARPBOARD_MARKS_H
#define WARPBOARD_MARKS_H

#ifdef WARPBOARD_NO_MARKS

static inline void warpboard_step_begin(unsigned long number) { (void)number; }
static inline void warpboard_step_end(void) {}
static inline void warpboard_phase_begin(const char *name) { (void)name; }
static inline void warpboard_phase_end(void) {}

#else

#include <nvtx3/nvToolsExt.h>
#include <stdio.h>

/* Begin step `number`; the readers know the range `iteration_N` as a step. */
static inline void warpboard_step_begin(unsigned long number) {
  char name[40];
  snprintf(name, sizeof name, "iteration_%lu", number);
  nvtxRangePushA(name);
}

static inline void warpboard_step_end(void) { nvtxRangePop(); }

static inline void warpboard_phase_begin(const char *name) { nvtxRangePushA(name); }

static inline void warpboard_phase_end(void) { nvtxRangePop(); }

#endif
#endif
