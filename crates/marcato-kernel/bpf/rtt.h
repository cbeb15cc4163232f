/* Round-trip time of a flow, smoothed, in ticks. The counterpart is marcato-queue/src/trap/rtt.rs. */
#ifndef MARCATO_RTT_H
#define MARCATO_RTT_H

#include "types.h"

/* Upper bound of a round trip, 2^23 ticks or 8.6 s. */
#define MAX_RTT (1u << 23)

INLINE __u32 clamp(__u32 value, __u32 least, __u32 most)
{
	return value < least ? least : value > most ? most : value;
}

INLINE void rtt_sample(__u32 *rtt, __u32 sample)
{
	__u32 now = *rtt;
	sample = clamp(sample, 1, MAX_RTT);
	if (now == 0) {
		*rtt = sample;
		return;
	}
	/* One sample at most halves or doubles what it is compared with. */
	__u32 half = now >> 1;
	sample = clamp(sample, half ? half : 1, now << 1);
	/* A queue that fills makes the round trip grow fast. */
	__u32 shift = sample > now + (now >> 2) ? 1 : 2;
	now = now - (now >> shift) + (sample >> shift);
	*rtt = now ? now : 1;
}

#endif
