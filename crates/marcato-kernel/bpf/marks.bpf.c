// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Marks of the sockets of one control group: DSCP and SO_PRIORITY by destination, port and SO_MARK.
 *
 * Each program runs in the call of the process that binds, connects or configures a socket, or that sends from an
 * unconnected one, or where a connection is accepted. None runs for each packet of a connection. */
#include "types.h"
#include "marks.h"
#include "option.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Digest of the sources, by which a build knows that an object is theirs. */
char SOURCES_DIGEST[] SEC("sources") = SOURCES;

/* A listening socket answers with its own mark, and sockets that it accepts inherit its priority. */
SEC("cgroup/bind4")
int marks_bind4(struct bpf_sock_addr *ctx)
{
	return bound(ctx);
}

SEC("cgroup/bind6")
int marks_bind6(struct bpf_sock_addr *ctx)
{
	return bound(ctx);
}

SEC("cgroup/connect4")
int marks_connect4(struct bpf_sock_addr *ctx)
{
	return towards(ctx, 4);
}

SEC("cgroup/connect6")
int marks_connect6(struct bpf_sock_addr *ctx)
{
	return towards(ctx, 6);
}

SEC("cgroup/sendmsg4")
int marks_sendmsg4(struct bpf_sock_addr *ctx)
{
	return towards(ctx, 4);
}

SEC("cgroup/sendmsg6")
int marks_sendmsg6(struct bpf_sock_addr *ctx)
{
	return towards(ctx, 6);
}

/* Accepted connections: rules are asked for the peer's address and the own port. */
SEC("sockops")
int marks_established(struct bpf_sock_ops *ctx)
{
	if (ctx->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 1;
	struct bpf_sock *sk = ctx->sk;
	if (!sk)
		return 1;
	struct marks_peer peer = {
		.protocol = IPPROTO_TCP,
		.port = ctx->local_port,
		.fwmark = sk->mark,
	};
	__u32 of_v4 = FIELD(ctx->remote_ip4);
	peer.address[0] = FIELD(ctx->remote_ip6[0]);
	peer.address[1] = FIELD(ctx->remote_ip6[1]);
	peer.address[2] = FIELD(ctx->remote_ip6[2]);
	peer.address[3] = FIELD(ctx->remote_ip6[3]);
	if (ctx->family == AF_INET)
		set_v4(&peer, of_v4);
	decide(ctx, sk, ctx->family, &peer);
	return 1;
}

/* A program's own DSCP and priority give way to those of the run. Its ECN field stays: RFC 3168 section 5. */
SEC("cgroup/setsockopt")
int marks_setsockopt(struct bpf_sockopt *ctx)
{
	__u8 *value = ctx->optval, *end = ctx->optval_end;
	int level = ctx->level, name = ctx->optname;
	bool tos = (level == SOL_IP && name == IP_TOS) || (level == SOL_IPV6 && name == IPV6_TCLASS);
	bool priority = level == SOL_SOCKET && name == SO_PRIORITY;
	const struct marks_config *config = configured();
	struct bpf_sock *sk = ctx->sk;
	if (!config || !sk || (!tos && !priority))
		goto as_given;
	const struct marks_mark *had = bpf_sk_storage_get(&marked, sk, 0, 0);
	struct marks_mark mark = had ? *had : config->standard;
	if (priority && mark.flags & MARK_PRIORITY && value + sizeof(__u32) <= end) {
		*(__u32 *)value = mark.priority;
		count(MARKS_REPLACED);
		return 1;
	}
	if (!tos || !(mark.flags & MARK_DSCP) || value + 1 > end)
		goto as_given;
	bool whole = value + sizeof(__s32) <= end;
	__s32 given = *value;
	if (value + sizeof(__s32) <= end)
		given = *(__s32 *)value;
	/* -1 is the default of IPV6_TCLASS. */
	given = (given < 0 ? 0 : given & ECN) | mark.dscp << 2;
	count(MARKS_REPLACED);
	/* The kernel would derive a priority from it (ip(7)): so it is set here, and the mark's priority after it. */
	if (!bpf_setsockopt(sk, level, name, &given, sizeof(given))) {
		int of_mark = mark.priority;
		if (mark.flags & MARK_PRIORITY &&
		    bpf_setsockopt(sk, SOL_SOCKET, SO_PRIORITY, &of_mark, sizeof(of_mark)))
			count(MARKS_FAILED);
		/* Nothing is left to do for the kernel. */
		ctx->optlen = -1;
		return 1;
	}
	/* A type of service on a socket of IPv6, for IPv4: no program of eBPF may set it, but its value can change. */
	if (whole && value + sizeof(__s32) <= end)
		*(__s32 *)value = given;
	else
		*value = given;
	return 1;
as_given:
	/* The kernel then takes the value as the program gave it, also if it is longer than a page. */
	ctx->optlen = 0;
	return 1;
}

/* The TCP option: runs for each segment of the group's connections that have agreed on it. */
SEC("sockops")
int option_segments(struct bpf_sock_ops *ctx)
{
	switch (ctx->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		if (option_is_remembered(ctx))
			option_count(OPTION_REMEMBERED);
		else
			option_set_flags(ctx, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG, 0);
		break;
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
		option_set_flags(ctx, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG, 0);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		option_reserve(ctx);
		break;
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
		option_store(ctx);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		option_established(ctx, true);
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		option_established(ctx, false);
		break;
	case BPF_SOCK_OPS_PARSE_HDR_OPT_CB:
		option_hear(ctx);
		break;
	case BPF_SOCK_OPS_RTO_CB:
		option_timeout(ctx);
		break;
	}
	return 1;
}
