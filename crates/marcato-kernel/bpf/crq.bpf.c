// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Congestion-responsive queuing in the Linux kernel: programs and where they are attached. */
#include "signals.h"

/* The kernel lends some of its helpers to programs under its own licence only; MIT may be combined with it. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Digest of the sources, by which a build knows that an object is theirs. */
char SOURCES_DIGEST[] SEC("sources") = SOURCES;

/* Leaving packets: assessed, and sent to their queue by `skb->priority`. */
SEC("classifier")
int crq_egress(struct __sk_buff *skb)
{
	const struct crq_config *config = configured();
	__u32 priority = config ? classify(skb, config, false) : 0;
	if (priority)
		skb->priority = priority;
	/* Other programs of this hook follow, and the packet goes on in any case. */
	return TC_ACT_UNSPEC;
}

/* Packets of one class of somebody's tree: a filter of the HTB below that class. The major number of the class is the
 * filter's own. */
SEC("classifier")
int crq_class(struct __sk_buff *skb)
{
	const struct crq_config *config = configured();
	__u32 priority = config ? classify(skb, config, false) : 0;
	/* Without a class, HTB has its default. */
	if (!priority)
		return TC_ACT_UNSPEC;
	skb->tc_classid = priority & 0xffff;
	return TC_ACT_OK;
}

/* Entering packets: the other direction of flows. */
SEC("classifier")
int crq_ingress(struct __sk_buff *skb)
{
	const struct crq_config *config = configured();
	if (config)
		watch(skb, config, false);
	return TC_ACT_UNSPEC;
}

/* Class of a subscriber, as a filter of the root queue: its number is that of the queue that `crq_egress` has named. */
SEC("classifier")
int crq_subscriber(struct __sk_buff *skb)
{
	__u32 handle = skb->priority >> 16;
	/* HTB sends what names itself without a limit. */
	if (!handle)
		return TC_ACT_UNSPEC;
	skb->tc_classid = handle;
	return TC_ACT_OK;
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(crq_dropped, struct sk_buff *skb, void *location, __u32 reason)
{
	note_drop(skb, (__u64)location, reason);
	return 0;
}

SEC("tp_btf/qdisc_dequeue")
int BPF_PROG(crq_dequeued, struct Qdisc *qdisc, struct netdev_queue *txq, int packets, struct sk_buff *skb)
{
	if (packets <= 0)
		return 0;
	const struct crq_config *config = configured();
	if (!config)
		return 0;
	/* A list of packets may leave at once. */
	for (int i = 0; i < MAX_DEQUEUED && skb; i++) {
		note_departure(config, skb);
		if (i + 1 >= packets)
			break;
		skb = skb->next;
	}
	return 0;
}

/* The same for tests: at the time in `skb->tstamp`, without a device or its queues. */
SEC("classifier")
int crq_test_egress(struct __sk_buff *skb)
{
	const struct crq_config *config = configured();
	if (config)
		classify(skb, config, true);
	return skb->tc_index;
}

SEC("classifier")
int crq_test_ingress(struct __sk_buff *skb)
{
	const struct crq_config *config = configured();
	if (config)
		watch(skb, config, true);
	return TC_ACT_UNSPEC;
}

/* Reads a packet only, for comparison with other readers. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct packet);
} test_packet SEC(".maps");

SEC("classifier")
int crq_test_read(struct __sk_buff *skb)
{
	struct packet packet;
	__u32 only = 0;
	const struct crq_config *config = configured();
	bool read = config && skb_read(skb, config->link_header, &packet);
	if (read)
		bpf_map_update_elem(&test_packet, &only, &packet, 0);
	return read;
}

/* The signal `skb->cb[0]` by the packets on the wire of this one, of the cycle `skb->cb[1]`. */
SEC("classifier")
int crq_test_signal(struct __sk_buff *skb)
{
	struct packet packet;
	const struct crq_config *config = configured();
	if (config && skb_read(skb, config->link_header, &packet))
		signal_to(config, &packet.key, skb->cb[0], skb->cb[1], packet.segments);
	return TC_ACT_UNSPEC;
}
