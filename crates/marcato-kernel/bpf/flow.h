/* Flows: their states, and who may enter one. The counterpart is marcato-queue/src/crq/flow.rs. */
#ifndef MARCATO_FLOW_H
#define MARCATO_FLOW_H

#include "counters.h"
#include "trap.h"

/* Marks a class that was never set. */
#define NO_QUEUE 0xff

struct flow {
	/* Set by the CPU that is in `trap` and the fields after it. */
	__u32 entered;
	/* Signals that no packet has taken into account yet, by kind and the cycle's number modulo SLOTS. Any CPU adds. */
	__u32 pending[SIGNALS][SLOTS];
	/* Drops and marks in total. Any CPU adds. */
	__u32 signals[SIGNALS];
	__u32 changes;
	__u64 packets;
	__u64 bytes;
	/* Time of the last packet, of the kernel's monotonic clock. */
	__u64 seen;
	__u8 queue;
	__u8 is_known;
	__u16 pad;
	struct trap trap;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_FLOWS);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

/* UDP flows from which, or to which, a long header of QUIC came. Other UDP takes no place anywhere. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_GREETINGS);
	__type(key, struct flow_key);
	/* Bits, which any CPU adds. */
	__type(value, __u32);
} greetings SEC(".maps");

enum { GREETED = 1, GREETED_BACK = 2 };

/* A value of which a new flow is a copy: it does not fit on the stack. Never written. */
struct flow new_flow;

/* Waits for another CPU to leave the state of a flow, and enters it. Returns whether that worked. */
GLOBAL int flow_enter_later(struct flow *flow)
{
	if (!flow)
		return 0;
	for (int attempt = 1; attempt < MAX_ENTRY_ATTEMPTS; attempt++) {
		if (__sync_val_compare_and_swap(&flow->entered, 0, 1) == 0)
			return 1;
	}
	return 0;
}

/* Enters the state of a flow, and returns whether that worked: not if another CPU stays too long. */
INLINE bool flow_enter(struct flow *flow)
{
	return __sync_val_compare_and_swap(&flow->entered, 0, 1) == 0 || flow_enter_later(flow);
}

INLINE void flow_leave(struct flow *flow)
{
	__sync_lock_test_and_set(&flow->entered, 0);
}

/* Returns the flow's state, and makes one if there is none. */
INLINE struct flow *flow_find_or_add(const struct flow_key *key)
{
	struct flow *flow = bpf_map_lookup_elem(&flows, key);
	if (flow)
		return flow;
	if (bpf_map_update_elem(&flows, key, &new_flow, BPF_NOEXIST) == 0)
		count(COUNT_FLOWS_ADDED, 0);
	flow = bpf_map_lookup_elem(&flows, key);
	if (!flow)
		count(COUNT_MAP_FULL, 0);
	return flow;
}

/* Notes that a long header of a known version came, from the flow's sender or from the other host. */
INLINE void greet(const struct flow_key *key, __u32 which)
{
	__u32 *known = bpf_map_lookup_elem(&greetings, key);
	if (known) {
		__sync_fetch_and_or(known, which);
		return;
	}
	if (bpf_map_update_elem(&greetings, key, &which, BPF_NOEXIST) != 0)
		count(COUNT_MAP_FULL, 0);
}

/* Whether a UDP packet belongs to a flow of QUIC, by the rule of the configuration. RFC 8999 section 5.1, RFC 9000
 * section 17.4. */
INLINE bool is_quic(const struct trap_config *config, const struct packet *packet)
{
	if (packet->quic != QUIC_SHORT)
		return false;
	if (config->quic_rule == QUIC_FIRST_BIT)
		return packet->fixed;
	__u32 *known = bpf_map_lookup_elem(&greetings, &packet->key);
	if (!known)
		return false;
	if (config->quic_rule == QUIC_VERSION)
		return *known & GREETED;
	return (*known & (GREETED | GREETED_BACK)) == (GREETED | GREETED_BACK);
}

/* Returns the state of the flow of a packet, if it can be assessed. */
INLINE struct flow *flow_of(const struct trap_config *config, const struct packet *packet)
{
	if (packet->transport == TRANSPORT_TCP)
		return flow_find_or_add(&packet->key);
	if (packet->transport != TRANSPORT_UDP)
		return 0;
	struct flow *flow = bpf_map_lookup_elem(&flows, &packet->key);
	if (flow)
		return flow;
	if (packet->greets)
		greet(&packet->key, GREETED);
	return is_quic(config, packet) ? flow_find_or_add(&packet->key) : 0;
}

/* Gives a new flow its trap. The caller has entered it. */
INLINE void flow_recognise(struct flow *flow, const struct packet *packet)
{
	if (flow->is_known)
		return;
	flow->is_known = 1;
	flow->queue = NO_QUEUE;
	trap_init(&flow->trap, packet->transport == TRANSPORT_TCP ? TRAP_TCP : TRAP_SPIN);
}

/* Whether there are signals that no packet has taken into account. */
INLINE bool flow_has_signals(const struct flow *flow)
{
	__u32 any = 0;
#pragma unroll
	for (__u32 slot = 0; slot < SLOTS; slot++)
		any |= flow->pending[LOSS][slot] | flow->pending[ECN][slot];
	return any;
}

/* Takes the signals into account that came since the last packet. The caller has entered the flow. */
GLOBAL int flow_take_signals(struct flow *flow, const struct trap_config *config)
{
	if (!flow || !config)
		return 0;
	__u8 now = assessment_cycle_id(&flow->trap.assessment);
	for (__u32 kind = 0; kind < SIGNALS; kind++) {
		for (__u32 slot = 0; slot < SLOTS; slot++) {
			if (flow->pending[kind][slot] == 0)
				continue;
			__u32 fresh = __sync_lock_test_and_set(&flow->pending[kind][slot], 0);
			__u8 age = (now - slot) & (SLOTS - 1);
			trap_signal(&flow->trap, config, kind, now - age, fresh);
		}
	}
	return 0;
}

/* Queue for a flow under its verdicts. CRQ section III-B3. */
INLINE __u8 queue_for(const struct crq_config *config, const struct assessment *assessment)
{
	bool loss = assessment->verdicts[LOSS] == RESPONSIVE, ecn = assessment->verdicts[ECN] == RESPONSIVE;
	bool admitted = config->admission == ADMIT_LOSS  ? loss :
			config->admission == ADMIT_ECN	 ? ecn :
							   loss || ecn;
	return admitted ? RESPONSIVE_QUEUE : STANDARD_QUEUE;
}

#endif
