/* TCP option with the priority of a segment: kind 254, an ExID and one byte. RFC 6994, CATS section II-D2.
 *
 * Each end offers it in its SYN or answers it, and writes it only once the other end has. The value of a segment follows from
 * the offsets of its bytes in the stream, so that a retransmission has the same one. */
#ifndef MARCATO_OPTION_H
#define MARCATO_OPTION_H

#include "types.h"
#include "limits.h"

#define OPTION_KIND 254
#define OPTION_LENGTH 5
/* Bytes by which the kernel finds an experimental option: kind, length and ExID. */
#define OPTION_SEARCH 4
#define OPTION_EXID_HIGH 0xca
#define OPTION_EXID_LOW 0x75
#define OPTION_LEVELS 5

#define OPTION_AF_INET 2
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_ACK 0x10
#define TCP_HEADER 20

/* Retransmissions of a SYN after which it is sent without the option. */
#define OPTION_SYN_TRIES 2
/* Retransmission timeouts before the first acknowledged byte, after which a path counts as one that drops the option. */
#define OPTION_TIMEOUTS 2

struct option_wire {
	__u8 kind;
	__u8 length;
	__u8 exid[2];
	__u8 level;
};

struct option_config {
	/* Level of bytes that nobody has named. */
	__u32 level;
	__u32 unused;
	/* Time for which a peer that refuses the option is remembered. */
	__u64 remembered_ns;
};

struct option_boundary {
	/* Offset of the first byte that has this level. */
	__u64 offset;
	__u32 level;
	__u32 unused;
};

/* Boundaries of a socket in ascending order, as user space publishes them. */
struct option_published {
	__u32 count;
	__u32 unused;
	struct option_boundary boundary[MAX_BOUNDARIES];
};

/* Bytes that have arrived with one level. */
struct option_run {
	__u64 start, end;
	__u32 level;
	__u32 unused;
};

struct option_heard {
	/* Odd while it is being changed. */
	__u64 changes;
	/* Runs so far; the latest are kept. */
	__u64 runs;
	struct option_run run[MAX_RUNS];
};

struct option_socket {
	/* Sequence numbers of the first bytes of both directions, and the latest offsets seen. */
	__u32 first_out, first_in;
	__u64 out, in;
};

enum option_counter {
	/* SYNs with the option. */
	OPTION_OFFERED,
	/* Connections on which both ends mark. */
	OPTION_AGREED,
	/* Peers that have not answered it. */
	OPTION_REFUSED,
	/* Connections without it because their peer is remembered. */
	OPTION_REMEMBERED,
	/* SYNs that were sent without it after others with it got no answer. */
	OPTION_WITHHELD,
	/* Connections that went on without it because nothing with it was acknowledged. */
	OPTION_BLACK_HOLES,
	/* Segments with it, of which the kernel may make several on the wire. */
	OPTION_MARKED,
	/* Segments without room for it. */
	OPTION_NO_ROOM,
	/* Calls of the kernel that failed. */
	OPTION_FAILED,
	/* Segments with data that have arrived with it. */
	OPTION_HEARD,
	/* Options whose value is no level. */
	OPTION_MALFORMED,
	OPTION_COUNTERS,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct option_config);
} option_config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OPTION_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} option_counters SEC(".maps");

/* Peers that have refused the option, by address, with the time from boot until which they are remembered. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_REFUSING_PEERS);
	__type(key, __u32[4]);
	__type(value, __u64);
} option_peers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct option_socket);
} option_sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct option_published);
} option_out SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct option_heard);
} option_in SEC(".maps");

INLINE void option_count(__u32 counter)
{
	__u64 *number = bpf_map_lookup_elem(&option_counters, &counter);
	if (number)
		*number += 1;
}

INLINE void option_set_flags(struct bpf_sock_ops *ctx, int on, int off)
{
	bpf_sock_ops_cb_flags_set(ctx, (ctx->bpf_sock_ops_cb_flags & ~off) | on);
}

INLINE void option_peer(struct bpf_sock_ops *ctx, __u32 *address)
{
	__u32 of_v4 = *(volatile __u32 *)&ctx->remote_ip4;
	address[0] = *(volatile __u32 *)&ctx->remote_ip6[0];
	address[1] = *(volatile __u32 *)&ctx->remote_ip6[1];
	address[2] = *(volatile __u32 *)&ctx->remote_ip6[2];
	address[3] = *(volatile __u32 *)&ctx->remote_ip6[3];
	if (ctx->family == OPTION_AF_INET) {
		address[0] = address[1] = 0;
		address[2] = bpf_htonl(0xffff);
		address[3] = of_v4;
	}
}

INLINE bool option_is_remembered(struct bpf_sock_ops *ctx)
{
	__u32 address[4];
	option_peer(ctx, address);
	__u64 *until = bpf_map_lookup_elem(&option_peers, address);
	return until && *until > bpf_ktime_get_boot_ns();
}

INLINE void option_remember(struct bpf_sock_ops *ctx)
{
	__u32 key = 0, address[4];
	const struct option_config *config = bpf_map_lookup_elem(&option_config, &key);
	if (!config)
		return;
	option_peer(ctx, address);
	__u64 until = bpf_ktime_get_boot_ns() + config->remembered_ns;
	bpf_map_update_elem(&option_peers, address, &until, BPF_ANY);
}

/* Offset of a sequence number, which is less than 2^31 from the latest one. */
INLINE __u64 option_offset(__u64 *latest, __u32 first, __u32 sequence)
{
	__s64 offset = *latest + (__s32)(sequence - (first + (__u32)*latest));
	/* Probes of an idle connection repeat the byte before the first. */
	if (offset < 0)
		offset = 0;
	if (offset > (__s64)*latest)
		*latest = offset;
	return offset;
}

/* Looks for the option in the packet at hand, or in the SYN that it answers. Returns its level, or a negative error. */
INLINE int option_found(struct bpf_sock_ops *ctx, __u64 flags)
{
	struct option_wire wire = {
		.kind = OPTION_KIND,
		.length = OPTION_SEARCH,
		.exid = { OPTION_EXID_HIGH, OPTION_EXID_LOW },
	};
	int found = bpf_load_hdr_opt(ctx, &wire, sizeof(wire), flags);
	return found == OPTION_LENGTH ? wire.level : -1;
}

/* Most urgent level of these bytes; without any, that of the next one. */
INLINE __u8 option_level(const struct option_published *out, __u8 standard, __u64 start, __u64 end)
{
	__u32 level = standard, count = out->count;
	for (__u32 at = 0; at < MAX_BOUNDARIES; at++) {
		if (at >= count)
			break;
		const struct option_boundary *boundary = &out->boundary[at];
		if (boundary->offset <= start)
			level = boundary->level;
		else if (boundary->offset < end && boundary->level < level)
			level = boundary->level;
	}
	return level < OPTION_LEVELS ? level : standard;
}

/* Reserves room for the option. */
INLINE void option_reserve(struct bpf_sock_ops *ctx)
{
	__u32 flags = ctx->skb_tcp_flags;
	bool sizing = ctx->args[0] == BPF_WRITE_HDR_TCP_CURRENT_MSS;
	if (!sizing && (flags & (TCP_SYN | TCP_ACK)) == TCP_SYN && ctx->total_retrans >= OPTION_SYN_TRIES) {
		option_count(OPTION_WITHHELD);
		return;
	}
	if (!sizing && (flags & (TCP_SYN | TCP_ACK)) == (TCP_SYN | TCP_ACK) &&
	    option_found(ctx, BPF_LOAD_HDR_OPT_TCP_SYN) < 0)
		return;
	if (bpf_reserve_hdr_opt(ctx, OPTION_LENGTH, 0) && !sizing)
		option_count(OPTION_NO_ROOM);
}

/* Writes the option. */
INLINE void option_store(struct bpf_sock_ops *ctx)
{
	__u32 key = 0;
	const struct option_config *config = bpf_map_lookup_elem(&option_config, &key);
	if (!config)
		return;
	struct option_wire wire = {
		.kind = OPTION_KIND,
		.length = OPTION_LENGTH,
		.exid = { OPTION_EXID_HIGH, OPTION_EXID_LOW },
		.level = config->level,
	};
	bool opens = ctx->skb_tcp_flags & TCP_SYN;
	__u8 *header = ctx->skb_data, *header_end = ctx->skb_data_end;
	struct bpf_sock *sk = ctx->sk;
	if (!opens && sk && header + TCP_HEADER <= header_end) {
		__u32 sequence = bpf_ntohl(*(__u32 *)(header + 4));
		__u32 length = ctx->skb_len - (header[12] >> 4) * 4;
		struct option_socket *socket = bpf_sk_storage_get(&option_sockets, sk, 0, 0);
		const struct option_published *out = bpf_sk_storage_get(&option_out, sk, 0, 0);
		if (socket && out) {
			__u64 start = option_offset(&socket->out, socket->first_out, sequence);
			wire.level = option_level(out, config->level, start, start + length);
		}
	}
	if (bpf_store_hdr_opt(ctx, &wire, sizeof(wire), 0))
		option_count(OPTION_FAILED);
	else
		option_count(opens ? OPTION_OFFERED : OPTION_MARKED);
}

/* Records the level of the bytes that have arrived. */
INLINE void option_hear(struct bpf_sock_ops *ctx)
{
	__u8 *header = ctx->skb_data, *header_end = ctx->skb_data_end;
	struct bpf_sock *sk = ctx->sk;
	if (!sk || header + TCP_HEADER > header_end)
		return;
	__u32 sequence = bpf_ntohl(*(__u32 *)(header + 4));
	__u32 length = ctx->skb_len - (header[12] >> 4) * 4;
	/* An acknowledgement alone: half of all segments. */
	if (!length)
		return;
	int level = option_found(ctx, 0);
	if (level < 0)
		return;
	if (level >= OPTION_LEVELS) {
		option_count(OPTION_MALFORMED);
		return;
	}
	option_count(OPTION_HEARD);
	struct option_socket *socket = bpf_sk_storage_get(&option_sockets, sk, 0, 0);
	struct option_heard *in = bpf_sk_storage_get(&option_in, sk, 0, 0);
	if (!socket || !in)
		return;
	__u64 start = option_offset(&socket->in, socket->first_in, sequence);
	__u64 end = start + length, runs = in->runs;
	struct option_run *last = &in->run[(runs - 1) % MAX_RUNS];
	if (runs && last->level == (__u32)level && start >= last->start && start <= last->end) {
		/* One word, which a reader sees whole. */
		if (end > last->end)
			last->end = end;
		return;
	}
	struct option_run *run = &in->run[runs % MAX_RUNS];
	__sync_fetch_and_add(&in->changes, 1);
	run->start = start;
	run->end = end;
	run->level = level;
	in->runs = runs + 1;
	__sync_fetch_and_add(&in->changes, 1);
}

/* Begins to mark and to listen. */
INLINE void option_agree(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	if (!sk)
		return;
	struct option_socket *socket = bpf_sk_storage_get(&option_sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!socket || !bpf_sk_storage_get(&option_in, sk, 0, BPF_SK_STORAGE_GET_F_CREATE)) {
		option_count(OPTION_FAILED);
		option_set_flags(ctx, 0, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
		return;
	}
	socket->first_out = ctx->snd_una;
	socket->first_in = ctx->rcv_nxt;
	option_set_flags(ctx,
			 BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG | BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG |
				 BPF_SOCK_OPS_RTO_CB_FLAG,
			 0);
	option_count(OPTION_AGREED);
}

/* Decides at the end of the handshake. */
INLINE void option_established(struct bpf_sock_ops *ctx, bool active)
{
	if (option_found(ctx, 0) >= 0) {
		option_agree(ctx);
		/* The segment that ends the handshake may have data. */
		if (!active)
			option_hear(ctx);
		return;
	}
	bool offered = ctx->bpf_sock_ops_cb_flags & BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG;
	/* A listening socket hands its flags to those that it accepts. */
	option_set_flags(ctx, 0, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
	if (active && offered) {
		option_count(OPTION_REFUSED);
		option_remember(ctx);
	}
}

/* Gives up the option if the path seems to drop what has it. */
INLINE void option_timeout(struct bpf_sock_ops *ctx)
{
	/* The SYN counts as an acknowledged byte. */
	if (ctx->args[0] < OPTION_TIMEOUTS || ctx->bytes_acked > 1 ||
	    !(ctx->bpf_sock_ops_cb_flags & BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG))
		return;
	option_set_flags(ctx, 0, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG | BPF_SOCK_OPS_RTO_CB_FLAG);
	option_count(OPTION_BLACK_HOLES);
	option_remember(ctx);
}

#endif
