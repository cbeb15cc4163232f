/* SpinTrap: round trips from QUIC's spin bit. The counterpart is marcato-queue/src/trap/spin.rs, which says why.
 * CRQ section III-A1, RFC 9000 section 17.4. */
#ifndef MARCATO_SPIN_H
#define MARCATO_SPIN_H

#include "config.h"
#include "rtt.h"

#define SPIN_HOLD 4
#define SPIN_BLOCK 64
#define SPIN_NOISE (SPIN_BLOCK / 4)
#define SPIN_PROBATION 4

struct spin_trap {
	__u32 run_since;
	__u32 edge;
	__u32 rtt;
	__u8 bit;
	__u8 last;
	__u8 seen;
	__u8 run;
	__u8 edges;
	__u8 packets;
	__u8 flips;
	__u8 probation;
};

/* Looks for a flip that holds. */
INLINE void spin_validate(struct spin_trap *spin, __u32 now, __u8 bit)
{
	spin->flips += bit != spin->last;
	spin->last = bit;
	spin->packets += 1;
	if (spin->packets == SPIN_BLOCK) {
		if (spin->flips > SPIN_NOISE)
			spin->probation = SPIN_PROBATION;
		else if (spin->probation > 0)
			spin->probation -= 1;
		spin->packets = 0;
		spin->flips = 0;
	}
	/* RFC 9000 section 17.4 recommends random bits where spinning is disabled: they measure nothing. */
	if (spin->probation > 0) {
		spin->run = 0;
		spin->edges = 0;
		spin->rtt = 0;
		spin->bit = bit;
		return;
	}
	if (bit == spin->bit) {
		spin->run = 0;
		return;
	}
	if (spin->run == 0)
		spin->run_since = now;
	spin->run += 1;
	if (spin->run == SPIN_HOLD) {
		/* The first flip may be of a cycle that began before the flow was seen. */
		if (spin->edges == 2)
			rtt_sample(&spin->rtt, spin->run_since - spin->edge);
		else
			spin->edges += 1;
		spin->bit = bit;
		spin->run = 0;
		spin->edge = spin->run_since;
	}
}

/* Takes a packet with a short header, and returns whether it ends a cycle. */
INLINE bool spin_forward(struct spin_trap *spin, __u8 cycles, __u32 now, __u8 bit)
{
	/* The authors' program starts from 0, so that a constant 1 ends a cycle. */
	if (!spin->seen && cycles != CYCLES_HALF) {
		spin->bit = bit;
		spin->last = bit;
	}
	spin->seen = 1;
	if (cycles == CYCLES_ROUND_TRIP) {
		spin_validate(spin, now, bit);
		return false;
	}
	/* CRQ section III-C: every flip ends a cycle. */
	bool flipped = spin->bit != bit;
	spin->bit = bit;
	return flipped;
}

#endif
