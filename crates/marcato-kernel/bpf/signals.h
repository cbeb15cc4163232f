/* Signals of the device's queues: drops and marks of packets that left through the classifier.
 *
 * The kernel reports drops with a reason, which is numbered differently in each version and is looked up by name. CoDel
 * gives none before 6.14; there its drops are told by the place in its code. Marks are seen when packets leave the root
 * queue: their header says CE, and it did not when they came. */
#ifndef MARCATO_SIGNALS_H
#define MARCATO_SIGNALS_H

#include "classifier.h"

/* Adds signals by so many packets of the cycle `came` to their flow; the flow's next packet takes them into account. */
INLINE void signal_to(const struct crq_config *config, const struct flow_key *key, __u32 kind, __u8 came, __u32 packets)
{
	struct flow *flow = bpf_map_lookup_elem(&flows, key);
	if (!flow || !flow->is_known) {
		count_packets(COUNT_UNKNOWN_SIGNALS, packets, 0);
		return;
	}
	__u8 now = assessment_cycle_id(&flow->trap.assessment);
	if (config->trap.booking == BOOKING_GIVEN)
		came = now;
	__sync_fetch_and_add(&flow->signals[kind & 1], packets);
	count_packets(kind == LOSS ? COUNT_DROPS : COUNT_MARKS, packets, 0);
	if ((__u8)(now - came) < SLOTS)
		__sync_fetch_and_add(&flow->pending[kind & 1][came & (SLOTS - 1)], packets);
}

/* Number of packets on the wire that a packet of the kernel becomes: a queue drops or marks all of them at once. */
INLINE __u32 kernel_segments(const struct sk_buff *skb)
{
	const struct skb_shared_info *shared = (const void *)(BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, end));
	__u32 segments = BPF_CORE_READ(shared, gso_segs);
	return segments ? segments : 1;
}

/* Whether a packet of the kernel has a tag of a classifier. */
INLINE bool is_tagged(const struct sk_buff *skb)
{
	return (skb->tc_index & TAG_OURS_MASK) == TAG_OURS;
}

/* Whether a packet of the kernel left through this device's classifier. */
INLINE bool is_ours(const struct crq_config *config, const struct sk_buff *skb)
{
	if (!is_tagged(skb))
		return false;
	struct net_device *dev = skb->dev;
	return dev && (__u32)dev->ifindex == config->ifindex && dev->nd_net.net->ns.inum == config->netns;
}

#define REASON_IS(reason, name)                                        \
	(bpf_core_enum_value_exists(enum skb_drop_reason, name) &&     \
	 reason == bpf_core_enum_value(enum skb_drop_reason, name))

/* Whether a queue dropped the packet, and not what is above or below it. */
INLINE bool is_drop_of_queue(const struct crq_config *config, __u64 location, __u32 reason)
{
	if (REASON_IS(reason, SKB_DROP_REASON_QDISC_DROP) || REASON_IS(reason, SKB_DROP_REASON_QDISC_OVERLIMIT) ||
	    REASON_IS(reason, SKB_DROP_REASON_QDISC_CONGESTED))
		return true;
	bool codel = false;
	for (int i = 0; i < CODELS; i++)
		codel |= location >= config->codel[i][0] && location < config->codel[i][1];
	return codel;
}

/* Address of the packet's first byte, as a number: it is read with checks, wherever it points. */
INLINE __u64 packet_data(const struct sk_buff *skb)
{
	return (__u64)BPF_CORE_READ(skb, data);
}

/* Number of the packet's bytes that stand there. */
INLINE __u32 packet_linear(const struct sk_buff *skb)
{
	return skb->len - skb->data_len;
}

INLINE void note_drop(const struct sk_buff *skb, __u64 location, __u32 reason)
{
	const struct crq_config *config = configured();
	struct packet packet;
	if (!config || !is_ours(config, skb) || !is_drop_of_queue(config, location, reason))
		return;
	if (kernel_read(packet_data(skb), skb->len, packet_linear(skb), config->link_header, &packet))
		signal_to(config, &packet.key, LOSS, skb->tc_index & TAG_STAMP, kernel_segments(skb));
	else
		count_packets(COUNT_UNKNOWN_SIGNALS, kernel_segments(skb), 0);
}

/* Whether a packet of the kernel is marked: every packet that leaves is looked at, and few need to be read whole. */
INLINE bool is_marked(const struct crq_config *config, const struct sk_buff *skb)
{
	return kernel_ecn(packet_data(skb), packet_linear(skb), config->link_header) == ECN_CE;
}

INLINE void note_departure(const struct crq_config *config, const struct sk_buff *skb)
{
	struct packet packet;
	/* RFC 3168 section 5: without an ECN-capable transport there is no mark to look for. */
	if (!(skb->tc_index & TAG_CAPABLE) || !is_ours(config, skb) || !is_marked(config, skb))
		return;
	/* The authors' program also counts marks that another queue gave before. */
	if (skb->tc_index & TAG_CAME_MARKED && config->trap.counting != COUNTING_AUTHORS)
		return;
	if (kernel_read(packet_data(skb), skb->len, packet_linear(skb), config->link_header, &packet))
		signal_to(config, &packet.key, ECN, skb->tc_index & TAG_STAMP, kernel_segments(skb));
}

#endif
