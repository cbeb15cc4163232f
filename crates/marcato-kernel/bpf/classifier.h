/* Classification of packets that leave and enter the device. The counterpart is `Crq::assess` and `Crq::observe` in
 * marcato-queue/src/crq.rs.
 *
 * A packet without a state goes to the standard queue, whatever the reason: this never drops, and never holds anything. */
#ifndef MARCATO_CLASSIFIER_H
#define MARCATO_CLASSIFIER_H

#include "flow.h"
#include "subscribers.h"
#include "young.h"

/* `skb->tc_index` of a packet that left through this classifier: who, whether queues may mark it, whether it came marked, and
 * the cycle. */
#define TAG_OURS 0xc000
#define TAG_OURS_MASK 0xf000
#define TAG_CAPABLE 0x0200
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
INLINE __u8 queue_of(struct tallies *tallies, __u8 queue, __u8 covered, const struct packet *packet)
{
	if (covered == COVERED)
		return YOUNG_QUEUE;
	if (covered == OUTGROWN && queue == STANDARD_QUEUE)
		tally(tallies, COUNT_OUTGROWN, packet->segments, packet->len);
	return queue;
}

/* Time of a packet: of the kernel's clock, or of tests. A program reads the clock once, where it needs the time. */
INLINE __u64 time_of(const struct __sk_buff *skb, bool test)
{
	return test ? skb->tstamp : bpf_ktime_get_ns();
}

/* The same to a few milliseconds, in a third of the time. */
INLINE __u64 coarse_time_of(const struct __sk_buff *skb, bool test)
{
	return test ? skb->tstamp : bpf_ktime_get_coarse_ns();
}

/* Assesses a packet of the flow's own direction, and returns its queue. `tag` becomes the packet's tag, or 0. */
INLINE __u8 assess(struct __sk_buff *skb, const struct crq_config *config, bool test, const struct packet *packet,
		   struct tallies *tallies, __u16 *tag)
{
	/* Reading the clock waits for everything that is on its way from memory. Before the look-ups that is nothing, and they
	 * then wait together. */
	bool tcp = packet->transport == TRANSPORT_TCP;
	__u64 now = tcp ? time_of(skb, test) : 0;
	struct flow *flow = flow_of(&config->trap, packet);
	/* Only young flows need the time of a packet that is not assessed, and not to the microsecond. */
	if (!tcp)
		now = flow ? time_of(skb, test) : coarse_time_of(skb, test);
	__u8 covered = young_covers(config, now, packet);
	if (!flow) {
		tally(tallies, COUNT_UNASSESSED, packet->segments, packet->len);
		return queue_of(tallies, STANDARD_QUEUE, covered, packet);
	}
	if (!flow_enter(flow)) {
		tally(tallies, COUNT_CONTENDED, packet->segments, packet->len);
		__u8 queue = flow->queue == RESPONSIVE_QUEUE ? RESPONSIVE_QUEUE : STANDARD_QUEUE;
		return queue_of(tallies, queue, covered, packet);
	}
	flow_recognise(flow, packet);
	if (flow_has_signals(flow))
		flow_take_signals(flow, &config->trap);
	struct assessment *assessment = &flow->trap.assessment;
	trap_forward(&flow->trap, &config->trap, now, packet);
	__u8 queue = queue_of(tallies, queue_for(config, assessment), covered, packet);
	*tag = TAG_OURS | (packet->ecn ? TAG_CAPABLE : 0) | (packet->ecn == ECN_CE ? TAG_CAME_MARKED : 0) |
	       assessment_cycle_id(assessment);
	if (flow->queue != NO_QUEUE && flow->queue != queue) {
		/* CRQ section III-B3: observed signals are reset when a flow changes the queue. */
		assessment_changed_queue(assessment, &config->trap);
		flow->changes += 1;
		tally(tallies, COUNT_CHANGES, 1, packet->len);
	}
	flow->queue = queue;
	flow->packets += packet->segments;
	flow->bytes += packet->len;
	flow->seen = now;
	__u32 loss = assessment->verdicts[LOSS], ecn = assessment->verdicts[ECN];
	flow_leave(flow);
	tally(tallies, COUNT_BY_LOSS + (loss < VERDICTS ? loss : 0), packet->segments, packet->len);
	tally(tallies, COUNT_BY_ECN + (ecn < VERDICTS ? ecn : 0), packet->segments, packet->len);
	return queue;
}

/* Takes note of a packet that passes the other way. */
INLINE void observe(const struct __sk_buff *skb, const struct crq_config *config, bool test, const struct packet *packet)
{
	struct flow_key key;
	if (packet->transport != TRANSPORT_TCP && !packet->greets)
		return;
	flow_key_reverse(&packet->key, &key);
	if (packet->transport == TRANSPORT_UDP) {
		greet(&key, GREETED_BACK);
		return;
	}
	/* The other host opens the connection: its part of the handshake is half of the round trip. Other packets enter no
	 * flow: acknowledgements of a flow that is not seen must take no place from others. */
	bool opens = (packet->flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	__u64 now = time_of(skb, test);
	struct flow *flow = opens ? flow_find_or_add(&key) : bpf_map_lookup_elem(&flows, &key);
	if (!flow)
		return;
	if (!flow_enter(flow)) {
		count(COUNT_CONTENDED, 0);
		return;
	}
	flow_recognise(flow, packet);
	if (flow_has_signals(flow))
		flow_take_signals(flow, &config->trap);
	trap_backward(&flow->trap, &config->trap, now, packet);
	flow_leave(flow);
}

/* A packet that leaves. Returns the priority that names its queue's class, or 0. */
INLINE __u32 classify(struct __sk_buff *skb, const struct crq_config *config, bool test)
{
	struct packet packet;
	__u16 tag = 0;
	__u8 queue = STANDARD_QUEUE;
	struct tallies *tallies = tallies_here();
	if (!tallies)
		return 0;
	bool is_read = skb_read(skb, config->link_header, &packet);
	if (is_read)
		queue = assess(skb, config, test, &packet, tallies, &tag);
	else
		tally(tallies, COUNT_UNREADABLE, segments_of(skb), skb->wire_len);
	if (queue < QUEUES)
		tally(tallies, COUNT_STANDARD + queue, segments_of(skb), skb->wire_len);
	/* Without an assessment only an old tag of ours is removed: others may use the field. */
	if (tag || (skb->tc_index & TAG_OURS_MASK) == TAG_OURS)
		skb->tc_index = tag;
	__u32 priority = queue < QUEUES ? config->priority[queue] : 0;
	if (!config->side)
		return priority;
	/* The queues of every subscriber have the same minor numbers. */
	__u32 handle = is_read ? subscriber_of(&packet.key, config->side, config->generation) : 0;
	return (handle ? handle : OTHERS) << 16 | (priority & 0xffff);
}

/* A packet of the other direction, which enters, or leaves by another device. */
INLINE void watch(struct __sk_buff *skb, const struct crq_config *config, bool test)
{
	struct packet packet;
	if (skb_read(skb, config->reverse_link_header, &packet))
		observe(skb, config, test, &packet);
}

#endif
