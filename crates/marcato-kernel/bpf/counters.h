/* Counters of the device, one set per CPU. marcato-kernel/src/counters.rs names them in the same order. */
#ifndef MARCATO_COUNTERS_H
#define MARCATO_COUNTERS_H

#include "config.h"

enum {
	/* Packets by the queue that they were sent to. */
	COUNT_STANDARD,
	COUNT_RESPONSIVE,
	COUNT_YOUNG,
	/* Packets of flows by verdict: unclassified, responsive, unresponsive; on loss, then on marks. */
	COUNT_BY_LOSS,
	COUNT_BY_ECN = COUNT_BY_LOSS + VERDICTS,
	/* Packets that cannot be assessed: other protocols, fragments, UDP that is not QUIC. */
	COUNT_UNASSESSED = COUNT_BY_ECN + VERDICTS,
	/* Packets that are no readable IP. */
	COUNT_UNREADABLE,
	/* Flows that got a state. */
	COUNT_FLOWS_ADDED,
	/* Flows that got none. */
	COUNT_MAP_FULL,
	/* Packets whose flow's state another CPU held for too long. */
	COUNT_CONTENDED,
	/* Signals of this device's queues to flows with a state: drops, marks. */
	COUNT_DROPS,
	COUNT_MARKS,
	/* Signals by packets without a state. */
	COUNT_UNKNOWN_SIGNALS,
	/* Changes of queue. */
	COUNT_CHANGES,
	/* Packets in the standard queue that would have been young, but for an allowance that is used up. */
	COUNT_OUTGROWN,
	COUNTERS
};

struct tally {
	__u64 packets;
	__u64 bytes;
};

/* All counters are one value: a program looks it up once. */
struct tallies {
	struct tally of[COUNTERS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tallies);
} counters SEC(".maps");

INLINE struct tallies *tallies_here(void)
{
	__u32 only = 0;
	return bpf_map_lookup_elem(&counters, &only);
}

INLINE void tally(struct tallies *tallies, __u32 which, __u32 packets, __u32 bytes)
{
	struct tally *tally = &tallies->of[which];
	tally->packets += packets;
	tally->bytes += bytes;
}

INLINE void count_packets(__u32 which, __u32 packets, __u32 bytes)
{
	struct tallies *here = tallies_here();
	if (here)
		tally(here, which, packets, bytes);
}

INLINE void count(__u32 which, __u32 bytes)
{
	count_packets(which, 1, bytes);
}

#endif
