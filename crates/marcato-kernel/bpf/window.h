/* Data sent in one cycle. The counterpart is marcato-queue/src/trap/window.rs. */
#ifndef MARCATO_WINDOW_H
#define MARCATO_WINDOW_H

#include "config.h"

struct window {
	__u32 bytes;
	/* Length of the cycle, in ticks of 1024 ns. */
	__u32 ticks;
};

INLINE __u64 at_most(__u64 value, __u64 most)
{
	return value < most ? value : most;
}

/* Whether `after` is the threshold's part of `before` or less, or at least `reduction` bytes less; a reduction of 0 bytes
 * does not count. */
INLINE bool window_is_reduced_to(struct window before, struct window after, const struct trap_config *config,
				 __u32 reduction)
{
	__u64 before_ticks = 1, after_ticks = 1;
	if (config->window == WINDOW_RATE) {
		before_ticks = at_most(before.ticks, 1 << 25);
		after_ticks = at_most(after.ticks, 1 << 25);
	}
	__u64 was = at_most(before.bytes, 1u << 31);
	__u64 sent = at_most(after.bytes, 1u << 31) * before_ticks;
	if (100 * sent <= config->threshold * (was * after_ticks))
		return true;
	__u64 less = was > reduction ? was - reduction : 0;
	return reduction > 0 && sent <= less * after_ticks;
}

#endif
