/* Classification of packets that leave and enter the device. The counterpart is `Crq::assess` and `Crq::observe` in
 * marcato-queue/src/crq.rs.
 *
 * A packet without a state goes to the standard queue, whatever the reason: this never drops, and never holds anything. */
#ifndef MARCATO_CLASSIFIER_H
#define MARCATO_CLASSIFIER_H

#include "flow.h"
#include "young.h"

/* `skb->tc_index` of a packet that left through this classifier: who, whether it came marked, and the cycle. */
#define TAG_OURS 0xc000
#define TAG_OURS_MASK 0xf000
#define TAG_CAME_MARKED 0x0100
#define TAG_STAMP 0x00ff

#define ECN_CE 3

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct crq_config);
} configuration SEC(".maps");

/* Text of the loader, which reads it when it changes the configuration later. No program uses it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct note);
} note SEC(".maps");

INLINE const struct crq_config *configured(void)
{
	__u32 only = 0;
	return bpf_map_lookup_elem(&configuration, &only);
}

/* Queue of a packet that its flow's verdicts alone send to `queue`. */
INLINE __u8 queue_of(__u8 queue, __u8 covered, const struct packet *packet)
{
	if (covered == COVERED)
		return YOUNG_QUEUE;
	if (covered == OUTGROWN && queue == STANDARD_QUEUE)
		count_packets(COUNT_OUTGROWN, packet->segments, packet->len);
	return queue;
}

/* Assesses a packet of the flow's own direction at `now`, and returns its queue. `tag` becomes the packet's tag, or 0. */
INLINE __u8 assess(const struct crq_config *config, __u64 now, const struct packet *packet, __u16 *tag)
{
	*tag = 0;
	__u8 covered = young_covers(config, now, packet);
	struct flow *flow = flow_of(&config->trap, packet);
	if (!flow) {
		count_packets(COUNT_UNASSESSED, packet->segments, packet->len);
		return queue_of(STANDARD_QUEUE, covered, packet);
	}
	if (!flow_enter(flow)) {
		count_packets(COUNT_CONTENDED, packet->segments, packet->len);
		return queue_of(flow->queue == RESPONSIVE_QUEUE ? RESPONSIVE_QUEUE : STANDARD_QUEUE, covered, packet);
	}
	flow_recognise(flow, packet);
	flow_take_signals(flow, &config->trap);
	struct assessment *assessment = &flow->trap.assessment;
	trap_forward(&flow->trap, &config->trap, now, packet);
	__u8 queue = queue_of(queue_for(config, assessment), covered, packet);
	*tag = TAG_OURS | (packet->ecn == ECN_CE ? TAG_CAME_MARKED : 0) | assessment_cycle_id(assessment);
	if (flow->queue != NO_QUEUE && flow->queue != queue) {
		/* CRQ section III-B3: observed signals are reset when a flow changes the queue. */
		assessment_changed_queue(assessment, &config->trap);
		flow->changes += 1;
		count(COUNT_CHANGES, packet->len);
	}
	flow->queue = queue;
	flow->packets += packet->segments;
	flow->bytes += packet->len;
	flow->seen = now;
	__u32 loss = assessment->verdicts[LOSS], ecn = assessment->verdicts[ECN];
	flow_leave(flow);
	count_packets(COUNT_BY_LOSS + (loss < VERDICTS ? loss : 0), packet->segments, packet->len);
	count_packets(COUNT_BY_ECN + (ecn < VERDICTS ? ecn : 0), packet->segments, packet->len);
	return queue;
}

/* Takes note of a packet that passes the other way at `now`. */
INLINE void observe(const struct crq_config *config, __u64 now, const struct packet *packet)
{
	struct flow_key key;
	flow_key_reverse(&packet->key, &key);
	if (packet->transport == TRANSPORT_UDP) {
		if (packet->greets)
			greet(&key, GREETED_BACK);
		return;
	}
	if (packet->transport != TRANSPORT_TCP)
		return;
	/* The other host opens the connection: its part of the handshake is half of the round trip. Other packets enter no
	 * flow: acknowledgements of a flow that is not seen must take no place from others. */
	bool opens = (packet->flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	struct flow *flow = opens ? flow_find_or_add(&key) : bpf_map_lookup_elem(&flows, &key);
	if (!flow)
		return;
	if (!flow_enter(flow)) {
		count(COUNT_CONTENDED, 0);
		return;
	}
	flow_recognise(flow, packet);
	flow_take_signals(flow, &config->trap);
	trap_backward(&flow->trap, &config->trap, now, packet);
	flow_leave(flow);
}

/* A packet that leaves at `now`. Returns the priority that names its queue's class, or 0. */
INLINE __u32 classify(struct __sk_buff *skb, const struct crq_config *config, __u64 now)
{
	struct packet packet;
	__u16 tag = 0;
	__u8 queue = STANDARD_QUEUE;
	if (skb_read(skb, config->link_header, &packet))
		queue = assess(config, now, &packet, &tag);
	else
		count_packets(COUNT_UNREADABLE, segments_of(skb), skb->wire_len);
	count_packets(COUNT_STANDARD + queue, segments_of(skb), skb->wire_len);
	/* Without an assessment only an old tag of ours is removed: others may use the field. */
	if (tag || (skb->tc_index & TAG_OURS_MASK) == TAG_OURS)
		skb->tc_index = tag;
	return queue < QUEUES ? config->priority[queue] : 0;
}

/* A packet of the other direction, which enters at `now`, or leaves by another device. */
INLINE void watch(struct __sk_buff *skb, const struct crq_config *config, __u64 now)
{
	struct packet packet;
	if (skb_read(skb, config->reverse_link_header, &packet))
		observe(config, now, &packet);
}

#endif
