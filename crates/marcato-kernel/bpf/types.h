/* Types of the kernel that are read here, with the fields that are read and no others: CO-RE finds their offsets when the
 * object is loaded. */
#ifndef MARCATO_TYPES_H
#define MARCATO_TYPES_H

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include <stdbool.h>

#define INLINE static __attribute__((always_inline)) inline
/* The verifier checks a global function once, for all arguments, instead of at each call. */
#define GLOBAL __attribute__((noinline))
#define CORE __attribute__((preserve_access_index))

struct ns_common {
	unsigned int inum;
} CORE;

struct net {
	struct ns_common ns;
} CORE;

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} CORE;

struct sk_buff {
	struct sk_buff *next;
	struct net_device *dev;
	unsigned char *head;
	unsigned int end;
	unsigned char *data;
	unsigned int len;
	unsigned int data_len;
	__u16 tc_index;
} CORE;

/* At `head + end` of a packet. */
struct skb_shared_info {
	unsigned short gso_segs;
} CORE;

struct Qdisc;
struct netdev_queue;

/* Numbers differ in each kernel: they are looked up by name when the object is loaded. */
enum skb_drop_reason {
	SKB_DROP_REASON_QDISC_DROP = 1,
	SKB_DROP_REASON_QDISC_OVERLIMIT = 2,
	SKB_DROP_REASON_QDISC_CONGESTED = 3,
};

#endif
