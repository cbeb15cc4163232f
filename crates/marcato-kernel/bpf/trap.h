/* Assessment of one flow. The counterpart is marcato-queue/src/trap.rs, which explains the machine. */
#ifndef MARCATO_TRAP_H
#define MARCATO_TRAP_H

#include "assessment.h"
#include "spin.h"
#include "tcp.h"

/* Length of a cycle, in round trips as a power of two, from which on the flow paused. */
#define PAUSE_SHIFT 2
/* Part of a round trip, as a power of two, that a cycle may be shorter. */
#define SLACK_SHIFT 4

enum { TRAP_NONE, TRAP_SPIN, TRAP_TCP };

struct trap {
	/* Beginning of the cycle, in ticks. */
	__u32 since;
	/* Bytes of payload in the cycle so far. */
	__u32 bytes;
	/* Last bytes in flight in the cycle that are known; 0 if none are. */
	__u32 flight;
	/* Packets seen, counted up to 2. */
	__u8 packets;
	__u8 kind;
	__u16 pad;
	union {
		struct spin_trap spin;
		struct tcp_trap tcp;
	};
	struct assessment assessment;
};

/* Ticks of 1024 ns at `now`, modulo 2^32. */
INLINE __u32 ticks(__u64 now)
{
	return now >> 10;
}

INLINE void trap_init(struct trap *trap, __u8 kind)
{
	trap->kind = kind;
	assessment_init(&trap->assessment);
}

INLINE void trap_begin_cycle(struct trap *trap, __u32 now)
{
	trap->since = now;
	trap->bytes = 0;
	trap->flight = 0;
}

/* Whether a cycle that is as long as a round trip has ended. */
INLINE bool trap_ends_by_time(struct trap *trap, __u32 now, __u32 elapsed)
{
	__u32 rtt = trap->kind == TRAP_TCP ? trap->tcp.rtt : trap->spin.rtt;
	if (rtt == 0 || elapsed >= rtt << PAUSE_SHIFT) {
		/* There is no round trip to measure by, or the flow paused. */
		if (rtt != 0 || elapsed >= MAX_RTT) {
			assessment_forget(&trap->assessment);
			trap_begin_cycle(trap, now);
		}
		return false;
	}
	return elapsed >= rtt - (rtt >> SLACK_SHIFT);
}

/* Takes a packet of the flow that arrives at `time`. */
INLINE void trap_forward(struct trap *trap, const struct trap_config *config, __u64 time, const struct packet *packet)
{
	__u32 now = ticks(time);
	bool ends = false;
	if (trap->kind == TRAP_TCP && packet->transport == TRANSPORT_TCP)
		ends = tcp_forward(&trap->tcp, config->cycles, now, packet);
	else if (trap->kind == TRAP_SPIN && packet->transport == TRANSPORT_UDP)
		/* RFC 9000 section 17.4: only short headers have a spin bit. The others count all the same. */
		ends = packet->quic == QUIC_SHORT && spin_forward(&trap->spin, config->cycles, now, packet->spin);
	else
		return;
	bool first = trap->packets == 0;
	trap->packets = first ? 1 : 2;
	if (first)
		trap->since = now;
	__u32 elapsed = now - trap->since;
	if (config->cycles == CYCLES_ROUND_TRIP)
		ends = trap_ends_by_time(trap, now, elapsed);
	if (ends) {
		assessment_close(&trap->assessment, config, trap->bytes, elapsed ? elapsed : 1, trap->flight);
		trap_begin_cycle(trap, now);
	}
	/* The authors create a flow's state from its first packet without counting that one. */
	if (!(first && config->counting == COUNTING_AUTHORS)) {
		__u32 sum = trap->bytes + packet->payload;
		trap->bytes = sum < trap->bytes ? ~0u : sum;
	}
	if (trap->kind == TRAP_TCP) {
		__u32 flight = tcp_flight(&trap->tcp);
		if (flight)
			trap->flight = flight;
	}
}

/* Takes a packet that passes the other way at `time`. */
INLINE void trap_backward(struct trap *trap, const struct trap_config *config, __u64 time, const struct packet *packet)
{
	if (trap->kind == TRAP_TCP && packet->transport == TRANSPORT_TCP)
		tcp_backward(&trap->tcp, config->cycles, ticks(time), packet);
}

/* Takes `count` signals that the queue gave by packets of the cycle `came`. */
INLINE void trap_signal(struct trap *trap, const struct trap_config *config, __u32 signal, __u8 came, __u32 count)
{
	/* The authors begin to count with the second packet. */
	if (config->counting == COUNTING_AUTHORS && trap->packets < 2)
		return;
	assessment_signal(&trap->assessment, config, signal, came, count);
}

#endif
