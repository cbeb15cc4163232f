/* Rules of marks, and the mark of a socket. */
#ifndef MARCATO_MARKS_H
#define MARCATO_MARKS_H

#include "types.h"
#include "limits.h"

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define SOL_IP 0
#define IP_TOS 1
#define SOL_IPV6 41
#define IPV6_TCLASS 67
#define SOL_SOCKET 1
#define SO_PRIORITY 12
/* The two low bits of the field that DSCP is in. */
#define ECN 3

/* Reads a field of a context at its own offset: the verifier refuses a pointer that the compiler has moved. */
#define FIELD(field) (*(volatile typeof(field) *)&(field))

/* Parts of a mark that are set. */
#define MARK_DSCP 1
#define MARK_PRIORITY 2

/* Conditions of a rule that count. */
#define RULE_FWMARK 1

struct marks_mark {
	__u8 flags;
	__u8 dscp;
	__u8 priority;
	__u8 unused;
};

/* Conditions that all have to fit. Zero of a protocol, and no bits of an address, mean any. */
struct marks_rule {
	__u8 protocol;
	/* Bits of the address that count. */
	__u8 bits;
	__u8 flags;
	__u8 unused;
	__u16 first_port, last_port;
	__u32 fwmark;
	/* In the order of the wire. An address of IPv4 stands behind ::ffff:0:0/96. */
	__u32 address[4];
	struct marks_mark mark;
};

struct marks_config {
	__u32 rules;
	/* Mark of sockets that no rule names. */
	struct marks_mark standard;
	struct marks_rule rule[MAX_MARK_RULES];
};

/* Other end of a socket, and the port by which a service is known. */
struct marks_peer {
	__u8 protocol;
	__u16 port;
	__u32 fwmark;
	/* As in rules. */
	__u32 address[4];
};

enum marks_counter {
	/* Sockets that got a mark, or another one. */
	MARKS_SET,
	/* Options of the program that gave way. */
	MARKS_REPLACED,
	/* Calls of the kernel that failed. */
	MARKS_FAILED,
	/* Sockets of IPv6 that speak IPv4: the kernel lets no program of eBPF set their DSCP. */
	MARKS_MAPPED,
	MARKS_COUNTERS,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct marks_config);
} marks_config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MARKS_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} marks_counters SEC(".maps");

/* Mark that a socket got. It ends with the socket. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct marks_mark);
} marked SEC(".maps");

INLINE const struct marks_config *configured(void)
{
	__u32 key = 0;
	return bpf_map_lookup_elem(&marks_config, &key);
}

INLINE void count(__u32 counter)
{
	__u64 *number = bpf_map_lookup_elem(&marks_counters, &counter);
	if (number)
		*number += 1;
}

/* Sets the options of a socket; `place` is the context of a program. DSCP comes first: it sets a priority
 * of its own (ip(7)). */
#define set_mark(place, family, mark)                                                                         \
	do {                                                                                                  \
		bool v4_ = (family) == AF_INET;                                                               \
		int level_ = v4_ ? SOL_IP : SOL_IPV6, name_ = v4_ ? IP_TOS : IPV6_TCLASS;                     \
		if ((mark)->flags & MARK_DSCP) {                                                              \
			int tos_ = 0;                                                                         \
			if (bpf_getsockopt(place, level_, name_, &tos_, sizeof(tos_)) || tos_ < 0)            \
				tos_ = 0;                                                                     \
			tos_ = (tos_ & ECN) | (mark)->dscp << 2;                                              \
			if (bpf_setsockopt(place, level_, name_, &tos_, sizeof(tos_)))                        \
				count(MARKS_FAILED);                                                          \
		}                                                                                             \
		if ((mark)->flags & MARK_PRIORITY) {                                                          \
			int priority_ = (mark)->priority;                                                     \
			if (bpf_setsockopt(place, SOL_SOCKET, SO_PRIORITY, &priority_, sizeof(priority_)))    \
				count(MARKS_FAILED);                                                          \
		}                                                                                             \
		count(MARKS_SET);                                                                             \
	} while (0)

INLINE bool is_within(const __u32 *address, const __u32 *prefix, __u8 bits)
{
	for (int word = 0; word < 4; word++) {
		if (bits <= 32 * word)
			return true;
		__u32 of_word = bits - 32 * word;
		__u32 mask = of_word >= 32 ? ~0U : ~(~0U >> of_word);
		if ((bpf_ntohl(address[word]) ^ bpf_ntohl(prefix[word])) & mask)
			return false;
	}
	return true;
}

INLINE bool fits(const struct marks_rule *rule, const struct marks_peer *peer)
{
	if (rule->protocol && rule->protocol != peer->protocol)
		return false;
	if (peer->port < rule->first_port || peer->port > rule->last_port)
		return false;
	if (rule->flags & RULE_FWMARK && rule->fwmark != peer->fwmark)
		return false;
	return is_within(peer->address, rule->address, rule->bits);
}

/* First rule that fits, else the mark of sockets that no rule names. */
static __attribute__((noinline)) const struct marks_mark *chosen(const struct marks_config *config,
								  const struct marks_peer *peer)
{
	for (__u32 number = 0; number < MAX_MARK_RULES; number++) {
		if (number >= config->rules)
			break;
		if (fits(&config->rule[number], peer))
			return &config->rule[number].mark;
	}
	return &config->standard;
}

INLINE void set_v4(struct marks_peer *peer, __u32 address)
{
	peer->address[0] = peer->address[1] = 0;
	peer->address[2] = bpf_htonl(0xffff);
	peer->address[3] = address;
}

INLINE bool is_v4(const struct marks_peer *peer)
{
	return !peer->address[0] && !peer->address[1] && peer->address[2] == bpf_htonl(0xffff);
}

/* Marks a socket by the rules, unless it has that mark already. A macro, as each kind of program has its own context. */
#define decide(ctx, sk, family, peer)                                                                         \
	do {                                                                                                  \
		const struct marks_config *config_ = configured();                                            \
		if (!config_)                                                                                 \
			break;                                                                                \
		struct marks_mark mark_ = *chosen(config_, peer);                                             \
		struct marks_mark *had_ = bpf_sk_storage_get(&marked, sk, 0, 0);                              \
		/* A socket that had a mark, and now has a destination without one, loses it. */              \
		struct marks_mark set_ = mark_;                                                               \
		if (had_)                                                                                     \
			set_.flags |= had_->flags;                                                            \
		if (!set_.flags || (had_ && had_->flags == mark_.flags && had_->dscp == mark_.dscp &&         \
				    had_->priority == mark_.priority))                                        \
			break;                                                                                \
		if (is_v4(peer) && (family) == AF_INET6 && set_.flags & MARK_DSCP)                            \
			count(MARKS_MAPPED);                                                                  \
		set_mark(ctx, family, &set_);                                                                 \
		had_ = bpf_sk_storage_get(&marked, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);                       \
		if (had_)                                                                                     \
			*had_ = mark_;                                                                        \
	} while (0)

INLINE int towards(struct bpf_sock_addr *ctx, __u8 version)
{
	struct bpf_sock *sk = ctx->sk;
	if (!sk)
		return 1;
	struct marks_peer peer = {
		.protocol = ctx->protocol,
		.port = bpf_ntohs((__u16)ctx->user_port),
		.fwmark = sk->mark,
	};
	if (version == 4) {
		set_v4(&peer, FIELD(ctx->user_ip4));
	} else {
		peer.address[0] = FIELD(ctx->user_ip6[0]);
		peer.address[1] = FIELD(ctx->user_ip6[1]);
		peer.address[2] = FIELD(ctx->user_ip6[2]);
		peer.address[3] = FIELD(ctx->user_ip6[3]);
	}
	decide(ctx, sk, ctx->family, &peer);
	return 1;
}

/* A socket that is bound has no destination yet: it gets the mark of those that no rule names. */
INLINE int bound(struct bpf_sock_addr *ctx)
{
	const struct marks_config *config = configured();
	struct bpf_sock *sk = ctx->sk;
	if (!config || !sk || !config->standard.flags)
		return 1;
	struct marks_mark mark = config->standard;
	set_mark(ctx, ctx->family, &mark);
	struct marks_mark *had = bpf_sk_storage_get(&marked, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (had)
		*had = mark;
	return 1;
}

#endif
