/* What the judges of a flow share: its last cycles, and rulings. The counterpart is the first part of
 * marcato-queue/src/trap/assessment.rs. */
#ifndef MARCATO_JUDGE_H
#define MARCATO_JUDGE_H

#include "window.h"

/* Windows that are kept: a power of two. */
#define KEPT 8

/* Last cycles of a flow, as its judge sees them. */
struct history {
	/* Latest first. */
	struct window windows[KEPT];
	/* Cycles with a signal of any kind, one bit each: the lowest is the current one's. */
	__u8 signalled;
};

/* Ruling on a signalled cycle: one of these, or ANSWERED plus the number of cycles after the signal. */
enum { WITHHELD, REFUSED, ANSWERED };

INLINE struct window history_window(const struct history *history, __u32 age)
{
	return history->windows[age & (KEPT - 1)];
}

/* Whether the window is large enough to judge the flow: after a backoff it is not. CRQ section III-A1. */
INLINE bool history_is_large_enough(const struct history *history, const struct trap_config *config)
{
	if (config->floor == FLOOR_AT_SIGNAL)
		return history_window(history, config->last).bytes > config->floor_bytes;
	return history_window(history, 0).bytes >= config->floor_bytes;
}

/* Whether the window `after` cycles ago is reduced from the one `before` cycles ago. */
GLOBAL int history_is_reduced(const struct history *history, const struct trap_config *config, __u32 before, __u32 after,
			      __u32 reduction)
{
	if (!history || !config)
		return 0;
	return window_is_reduced_to(history_window(history, before), history_window(history, after), config, reduction);
}

INLINE __u32 count_ones(__u8 bits)
{
	__u32 count = 0;
	for (int bit = 0; bit < 8; bit++)
		count += bits >> bit & 1;
	return count;
}

/* Logarithm to base 2, rounded down, of a number that is not 0. */
INLINE __u32 log2_whole(__u32 number)
{
	__u32 whole = 0;
	for (int bit = 4; bit >= 0; bit--) {
		if (number >> (whole + (1 << bit)))
			whole += 1 << bit;
	}
	return whole;
}

#endif
