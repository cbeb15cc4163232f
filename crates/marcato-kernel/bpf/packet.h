/* Flow and clear-text fields of a packet. The counterpart is marcato-wire/src/packet.rs, with tcp_segment.rs,
 * tcp_option.rs and quic_header.rs, which name the sources. Both must read every packet alike. */
#ifndef MARCATO_PACKET_H
#define MARCATO_PACKET_H

#include "limits.h"
#include "types.h"

enum { TCP_FIN = 0x01, TCP_SYN = 0x02, TCP_RST = 0x04, TCP_ACK = 0x10 };
enum { PROTOCOL_TCP = 6, PROTOCOL_UDP = 17 };
#define TCP_HEADER 20
enum { TRANSPORT_OPAQUE, TRANSPORT_TCP, TRANSPORT_UDP };
enum { QUIC_NONE, QUIC_SHORT, QUIC_LONG };

/* Identity of a flow. The protocol and the family are part of it. */
struct flow_key {
	/* IPv4 addresses stand in the last word. All fields are as on the wire. */
	__u32 source[4];
	__u32 destination[4];
	__u16 source_port;
	__u16 destination_port;
	__u8 protocol;
	__u8 family;
	__u16 pad;
	/* Aligned for those who read it by 64 bits. */
} __attribute__((aligned(8)));

struct packet {
	struct flow_key key;
	/* Bytes of the IP packet by its own header, and of the headers that its other segments will have. */
	__u32 len;
	/* Bytes above the transport header. */
	__u32 payload;
	__u32 seq;
	__u32 ack;
	/* Timestamps of RFC 7323: TSval and TSecr. */
	__u32 value;
	__u32 echo;
	__u8 has_timestamps;
	__u8 flags;
	__u8 transport;
	__u8 ecn;
	__u8 quic;
	__u8 fixed;
	__u8 spin;
	/* A long header of a version whose spin bit is known. */
	__u8 greets;
	/* Packets on the wire that it becomes, if segmentation or receive offload made it; 1 otherwise. */
	__u32 segments;
	/* DSCP LE: the packet asks for lower effort. RFC 8622. */
	__u8 lower;
	__u8 unused[3];
};

#define DSCP_LE 1

/* Sequence numbers that the segment takes: SYN and FIN take one each. RFC 9293 section 3.4. */
INLINE __u32 packet_sequence_len(const struct packet *packet)
{
	return packet->payload + !!(packet->flags & TCP_SYN) + !!(packet->flags & TCP_FIN);
}

INLINE void flow_key_reverse(const struct flow_key *key, struct flow_key *reversed)
{
	for (int i = 0; i < 4; i++) {
		reversed->source[i] = key->destination[i];
		reversed->destination[i] = key->source[i];
	}
	reversed->source_port = key->destination_port;
	reversed->destination_port = key->source_port;
	reversed->protocol = key->protocol;
	reversed->family = key->family;
	reversed->pad = 0;
}

/* Bytes of a packet: of a traffic control program's `skb`, or at an address of the kernel. `kernel` is a constant wherever
 * this is used, so that only one of the helpers remains, which are not for the same kinds of program. */
struct source {
	bool kernel;
	struct __sk_buff *skb;
	const unsigned char *at;
	/* Bytes from the beginning. */
	__u32 len;
	/* Those of them that stand at `at`; others are in pages elsewhere. */
	__u32 linear;
};

/* Headers that are copied are aligned, so that they are copied by words. */
#define HEADER __attribute__((aligned(4)))

/* Copies bytes of a packet, wherever they stand. */
INLINE bool load_elsewhere(const struct source *from, __u32 offset, void *to, __u32 count)
{
	if (from->kernel)
		return offset + count <= from->linear && bpf_probe_read_kernel(to, count, from->at + offset) == 0;
	return bpf_skb_load_bytes(from->skb, offset, to, count) == 0;
}

/* Copies bytes of a packet to `to`, which is aligned as the number of bytes is, by words at most. */
INLINE bool load(const struct source *from, __u32 offset, void *to, __u32 count)
{
	if (from->kernel)
		return load_elsewhere(from, offset, to, count);
	/* The helper takes ten times longer than a copy, so it is left to bytes that stand in pages elsewhere. */
	const unsigned char *begin = (const unsigned char *)(long)from->skb->data;
	const unsigned char *end = (const unsigned char *)(long)from->skb->data_end;
	if (offset <= MAX_LINEAR_OFFSET) {
		const unsigned char *at = begin + offset;
		if (at + count <= end) {
			if (count % 4 == 0)
				__builtin_memcpy(__builtin_assume_aligned(to, 4), __builtin_assume_aligned(at, 4), count);
			else if (count % 2 == 0)
				__builtin_memcpy(__builtin_assume_aligned(to, 2), __builtin_assume_aligned(at, 2), count);
			else
				__builtin_memcpy(to, at, count);
			return true;
		}
	}
	return load_elsewhere(from, offset, to, count);
}

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define ETHERTYPE_PPPOE 0x8864
#define PPP_IPV4 0x0021
#define PPP_IPV6 0x0057

INLINE bool is_tag(__u16 ethertype)
{
	return ethertype == 0x8100 || ethertype == 0x88a8 || ethertype == 0x9100;
}

/* Finds the IP header of an Ethernet frame: behind up to two VLAN tags and the headers of a PPPoE session (RFC 2516).
 * Returns the version that the frame names, or 0. */
INLINE __u8 ethernet_find_ip(const struct source *from, __u32 *at)
{
	__be16 word;
	*at = 14;
	if (!load(from, 12, &word, 2))
		return 0;
	__u16 ethertype = bpf_ntohs(word);
	for (int tags = 0; tags < MAX_VLAN_TAGS; tags++) {
		if (!is_tag(ethertype))
			break;
		*at += 4;
		if (!load(from, *at - 2, &word, 2))
			return 0;
		ethertype = bpf_ntohs(word);
	}
	if (ethertype == ETHERTYPE_IPV4)
		return 4;
	if (ethertype == ETHERTYPE_IPV6)
		return 6;
	if (ethertype != ETHERTYPE_PPPOE)
		return 0;
	*at += 8;
	if (!load(from, *at - 2, &word, 2))
		return 0;
	__u16 protocol = bpf_ntohs(word);
	return protocol == PPP_IPV4 ? 4 : protocol == PPP_IPV6 ? 6 : 0;
}

/* Finds the IP header of a packet, behind an Ethernet header if `link_header` is not 0. Returns its version, or 0. */
INLINE __u8 find_ip(const struct source *from, __u32 link_header, __u32 *at)
{
	__u8 first;
	*at = 0;
	if (link_header)
		return ethernet_find_ip(from, at);
	return load(from, 0, &first, 1) ? first >> 4 : 0;
}

struct tcp_options {
	__u8 bytes[64];
	__u32 len;
};

INLINE __u32 be32(const __u8 *bytes)
{
	return (__u32)bytes[0] << 24 | (__u32)bytes[1] << 16 | (__u32)bytes[2] << 8 | bytes[3];
}

/* The same of bytes that are aligned as a word. */
INLINE __u32 be32_word(const __u8 *bytes)
{
	return bpf_ntohl(*(const __be32 *)__builtin_assume_aligned(bytes, 4));
}

/* The first timestamps option. Goes through the bytes one by one: with the position known, the verifier has little to try. */
GLOBAL int tcp_find_timestamps(struct tcp_options *options, struct packet *packet)
{
	if (!options || !packet)
		return 0;
	__u32 skip = 0, len = options->len;
	for (__u32 at = 0; at + 1 < MAX_TCP_OPTIONS; at++) {
		if (skip > 0) {
			skip -= 1;
			continue;
		}
		__u8 kind = options->bytes[at], size = options->bytes[at + 1];
		/* The end of the list, or of the header; or an option that hides where the next one begins. */
		if (kind == 0 || at >= len)
			return 0;
		if (kind == 1)
			continue;
		if (size < 2 || at + size > len)
			return 0;
		if (kind == 8 && size == 10) {
			packet->has_timestamps = 1;
			packet->value = be32(&options->bytes[at + 2]);
			packet->echo = be32(&options->bytes[at + 6]);
			return 1;
		}
		skip = size - 1;
	}
	return 0;
}

/* Reads a TCP header at `at`; `left` bytes of it and of its payload are there, and it says that there are `len`. */
INLINE void tcp_read(const struct source *from, __u32 at, __u32 left, __u32 len, struct packet *packet)
{
	HEADER __u8 header[TCP_HEADER];
	if (!load(from, at, header, sizeof(header)))
		return;
	__builtin_memcpy(&packet->key.source_port, &header[0], 4);
	__u32 offset = (header[12] >> 4) * 4;
	if (offset < sizeof(header) || left < offset)
		return;
	packet->transport = TRANSPORT_TCP;
	packet->seq = be32_word(&header[4]);
	packet->ack = be32_word(&header[8]);
	packet->flags = header[13];
	packet->payload = len - offset;
	if (offset == 32) {
		/* RFC 7323 appendix A: two NOPs and the timestamps, which is all that most segments have. */
		HEADER __u8 usual[12];
		if (!load(from, at + 20, usual, sizeof(usual)))
			return;
		if (be32_word(usual) == 0x0101080a) {
			packet->has_timestamps = 1;
			packet->value = be32_word(&usual[4]);
			packet->echo = be32_word(&usual[8]);
			return;
		}
	}
	struct tcp_options options = {};
	__u32 bytes = offset - sizeof(header);
	/* Verifiers before 6.8 do not conclude from "not 0" that there is a byte: the compiler may not write it so. */
	asm volatile("" : "+r"(bytes));
	if (bytes < 4 || bytes > MAX_TCP_OPTIONS)
		return;
	options.len = bytes;
	if (load_elsewhere(from, at + 20, options.bytes, bytes))
		tcp_find_timestamps(&options, packet);
}

/* Reads a UDP header, and the beginning of its payload as QUIC. RFC 8999 section 5, RFC 9000 section 17. */
INLINE void udp_read(const struct source *from, __u32 at, __u32 left, __u32 len, struct packet *packet)
{
	HEADER __u8 header[8];
	if (!load(from, at, header, sizeof(header)))
		return;
	__builtin_memcpy(&packet->key.source_port, &header[0], 4);
	packet->transport = TRANSPORT_UDP;
	packet->payload = len - 8;
	__u8 first;
	if (left < 9 || !load(from, at + 8, &first, 1))
		return;
	if (!(first & 0x80)) {
		packet->quic = QUIC_SHORT;
		packet->fixed = !!(first & 0x40);
		packet->spin = !!(first & 0x20);
		return;
	}
	__be32 version;
	if (left < 13 || !load(from, at + 9, &version, 4))
		return;
	packet->quic = QUIC_LONG;
	packet->greets = version == bpf_htonl(1) || version == bpf_htonl(0x6b3343cf);
}

/* Whether a transport header of which `left` bytes are there has ports. They come first in both protocols. A TCP header that
 * is malformed further on still has them. */
INLINE bool has_ports(__u8 protocol, __u32 left)
{
	return (protocol == PROTOCOL_TCP && left >= 4) || (protocol == PROTOCOL_UDP && left >= 8);
}

/* Reads the transport header of a packet at `at`, of which the IP header says that it is there with its payload in `len`
 * bytes. */
INLINE void transport_read(const struct source *from, __u32 at, __u32 len, struct packet *packet)
{
	__u32 left = from->len > at ? from->len - at : 0;
	if (left > len)
		left = len;
	if (!has_ports(packet->key.protocol, left))
		return;
	if (packet->key.protocol == PROTOCOL_UDP)
		udp_read(from, at, left, len, packet);
	else if (left >= TCP_HEADER)
		tcp_read(from, at, left, len, packet);
	else
		load_elsewhere(from, at, &packet->key.source_port, 4);
}

/* Where the transport header of a packet is, and how long it is with its payload, by the IP header. */
struct upper {
	__u32 at;
	__u32 len;
	/* A fragment has no header that can be read. */
	bool fragment;
};

INLINE bool ipv4_read(const struct source *from, __u32 at, struct packet *packet, struct upper *upper)
{
	HEADER __u8 header[20];
	if (!load(from, at, header, sizeof(header)) || header[0] >> 4 != 4)
		return false;
	__u32 there = from->len - at, header_len = (header[0] & 0x0f) * 4;
	if (header_len < sizeof(header) || there < header_len)
		return false;
	__u32 total = (__u32)header[2] << 8 | header[3];
	/* Segmentation offload made the packet too large for 16 bits. */
	if (total == 0)
		total = there;
	if (total < header_len)
		return false;
	packet->len = total;
	packet->ecn = header[1] & 3;
	packet->lower = header[1] >> 2 == DSCP_LE;
	packet->key.family = 4;
	packet->key.protocol = header[9];
	__builtin_memcpy(&packet->key.source[3], &header[12], 4);
	__builtin_memcpy(&packet->key.destination[3], &header[16], 4);
	/* More fragments follow, or some came before. RFC 791 section 3.1. */
	upper->fragment = header[6] & 0x3f || header[7];
	upper->at = at + header_len;
	upper->len = total - header_len;
	return true;
}

/* Kinds of IPv6 extension headers, by their number. A table: comparisons one by one would multiply the verifier's work. */
enum { NO_EXTENSION, EXTENSION, FRAGMENT, AUTHENTICATION };
static const __u8 extensions[256] = {
	[0] = EXTENSION, /* hop by hop */
	[43] = EXTENSION, /* routing */
	[44] = FRAGMENT,
	[51] = AUTHENTICATION,
	[60] = EXTENSION, /* destination */
	[135] = EXTENSION, /* mobility */
	[139] = EXTENSION, /* host identity */
	[140] = EXTENSION, /* shim6 */
};

/* The headers of an IPv6 packet that have been skipped. */
struct chain {
	/* Where the IPv6 header is, and how many bytes there are from there on. */
	__u32 at;
	__u32 there;
	__u32 skipped;
	__u8 next;
	/* A fragment has no header that can be read. */
	__u8 fragment;
	__u16 pad;
};

/* Skips extension headers. Returns whether the transport's was found. */
INLINE bool skip_extensions(const struct source *from, struct chain *chain)
{
	/* One turn more than headers: it finds that no other one follows. */
	for (int headers = 0; headers <= MAX_EXTENSION_HEADERS; headers++) {
		__u8 kind = extensions[chain->next];
		if (kind == NO_EXTENSION)
			return true;
		__u8 head[8];
		__u32 skipped = chain->skipped, there = chain->there;
		if (skipped > there || there - skipped < sizeof(head) ||
		    !load_elsewhere(from, chain->at + skipped, head, sizeof(head)))
			return false;
		chain->next = head[0];
		if (kind == FRAGMENT) {
			chain->skipped = skipped + 8;
			/* RFC 6946: a fragment header with offset 0 and without more fragments belongs to a whole packet. */
			if (head[2] || head[3] & 0xf9) {
				chain->fragment = 1;
				return true;
			}
		} else {
			__u32 len = kind == AUTHENTICATION ? (head[1] + 2) * 4 : (head[1] + 1) * 8;
			if (there - skipped < len)
				return false;
			chain->skipped = skipped + len;
		}
	}
	return false;
}

/* The same, once for all places of the header, for a packet of a traffic control program. */
GLOBAL int skb_skip_extensions(struct __sk_buff *skb, struct chain *chain)
{
	if (!chain)
		return 0;
	struct source from = { .kernel = false, .skb = skb, .len = skb->len };
	return skip_extensions(&from, chain);
}

/* The same for bytes at an address of the kernel. */
GLOBAL int kernel_skip_extensions(__u64 at, __u32 linear, struct chain *chain)
{
	if (!chain)
		return 0;
	struct source from = { .kernel = true, .at = (const unsigned char *)at, .len = linear, .linear = linear };
	return skip_extensions(&from, chain);
}

INLINE bool ipv6_read(const struct source *from, __u32 at, struct packet *packet, struct upper *upper)
{
	HEADER __u8 header[40];
	if (!load(from, at, header, sizeof(header)) || header[0] >> 4 != 6)
		return false;
	__u32 there = from->len - at, total = (__u32)header[4] << 8 | header[5];
	/* RFC 2675: a jumbogram; or a packet made by segmentation offload. */
	total = total ? total + sizeof(header) : there;
	struct chain chain = { .at = at, .there = there, .skipped = sizeof(header), .next = header[6] };
	if (extensions[chain.next] != NO_EXTENSION) {
		if (!(from->kernel ? kernel_skip_extensions((__u64)from->at, from->linear, &chain) :
				     skb_skip_extensions(from->skb, &chain)))
			return false;
	}
	if (total < chain.skipped)
		return false;
	packet->len = total;
	packet->ecn = header[1] >> 4 & 3;
	packet->lower = ((header[0] & 0x0f) << 2 | header[1] >> 6) == DSCP_LE;
	packet->key.family = 6;
	packet->key.protocol = chain.next;
	__builtin_memcpy(packet->key.source, &header[8], 16);
	__builtin_memcpy(packet->key.destination, &header[24], 16);
	upper->fragment = chain.fragment;
	upper->at = at + chain.skipped;
	upper->len = total - chain.skipped;
	return true;
}

/* Reads the IP header of a packet, behind an Ethernet header if `link_header` is not 0, and finds the transport's. Returns
 * whether it is a readable IP packet. */
INLINE bool ip_read(const struct source *from, __u32 link_header, struct packet *packet, struct upper *upper)
{
	__u32 at = 0;
	__u8 version = find_ip(from, link_header, &at);
	if (at > from->len)
		return false;
	if (version == 4)
		return ipv4_read(from, at, packet, upper);
	if (version == 6)
		return ipv6_read(from, at, packet, upper);
	return false;
}

/* Number of packets on the wire that this one becomes. */
INLINE __u32 segments_of(const struct __sk_buff *skb)
{
	__u32 segments = skb->gso_segs;
	return segments ? segments : 1;
}

/* Reads a packet of a traffic control program. Returns whether it is a readable IP packet. */
INLINE bool skb_read(struct __sk_buff *skb, __u32 link_header, struct packet *packet)
{
	struct source from = { .kernel = false, .skb = skb, .len = skb->len };
	struct upper upper = {};
	__builtin_memset(packet, 0, sizeof(*packet));
	if (!ip_read(&from, link_header, packet, &upper))
		return false;
	packet->segments = segments_of(skb);
	if (!upper.fragment)
		transport_read(&from, upper.at, upper.len, packet);
	/* The kernel counts the headers of all segments, those of the link layer included. */
	__u32 more = skb->wire_len - skb->len, links = (packet->segments - 1) * link_header;
	if (skb->wire_len > skb->len && more > links)
		packet->len += more - links;
	return true;
}

/* Reads key and ECN of a packet whose first `linear` of `len` bytes are at an address of the kernel: the same bytes from
 * which a classifier of the device reads it. The kernel's own note of where the IP header is would name the header of a PPPoE
 * session, or an inner tag. */
GLOBAL int kernel_read(__u64 at, __u32 len, __u32 linear, __u32 link_header, struct packet *packet)
{
	if (!packet)
		return 0;
	struct source from = { .kernel = true, .at = (const unsigned char *)at, .len = len, .linear = linear };
	struct upper upper = {};
	__builtin_memset(packet, 0, sizeof(*packet));
	if (!ip_read(&from, link_header, packet, &upper))
		return 0;
	__u32 left = len > upper.at ? len - upper.at : 0;
	if (left > upper.len)
		left = upper.len;
	if (upper.fragment || !has_ports(packet->key.protocol, left))
		return 1;
	return load(&from, upper.at, &packet->key.source_port, 4);
}

/* ECN field of such a packet; 0 if it is no readable IP. */
GLOBAL int kernel_ecn(__u64 at, __u32 linear, __u32 link_header)
{
	struct source from = { .kernel = true, .at = (const unsigned char *)at, .len = linear, .linear = linear };
	__u32 header = 0;
	__u8 version = find_ip(&from, link_header, &header), begin[2];
	if ((version != 4 && version != 6) || !load(&from, header, begin, sizeof(begin)) || begin[0] >> 4 != version)
		return 0;
	return (version == 4 ? begin[1] : begin[1] >> 4) & 3;
}

#endif
