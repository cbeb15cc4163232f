/* Subscribers of the device, by the prefix of their addresses. */
#ifndef MARCATO_SUBSCRIBERS_H
#define MARCATO_SUBSCRIBERS_H

#include "config.h"
#include "packet.h"

/* Side of a packet on which its subscriber is: none, the source, the destination. */
enum { NO_SIDE, SOURCE_SIDE, DESTINATION_SIDE };

struct prefix_key {
	/* Bits that count, those of the generation included. */
	__u32 length;
	/* Generation of the prefixes: a new one is written beside the one that counts. */
	__u32 generation;
	/* Address; one of IPv4 stands behind ::ffff:0:0/96. */
	__u32 address[4];
};

/* Handles of the subscribers' queues. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_PREFIXES);
	__type(key, struct prefix_key);
	__type(value, __u32);
} prefixes SEC(".maps");

struct subscriber {
	char name[64];
	/* Rates in bit/s. */
	__u64 min;
	__u64 max;
};

/* Subscribers by handle. No program reads them: they are those of the loader, which changes them later. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SUBSCRIBERS);
	__type(key, __u32);
	__type(value, struct subscriber);
} subscribers SEC(".maps");

/* Returns the handle of a packet's subscriber; 0 if it has none. */
GLOBAL int subscriber_of(const struct flow_key *flow, __u32 side, __u32 generation)
{
	if (!flow)
		return 0;
	struct prefix_key key = { .length = 32 + 128, .generation = generation };
	for (int word = 0; word < 4; word++)
		key.address[word] = side == SOURCE_SIDE ? flow->source[word] : flow->destination[word];
	if (flow->family == 4)
		key.address[2] = bpf_htonl(0xffff);
	__u32 *handle = bpf_map_lookup_elem(&prefixes, &key);
	return handle ? *handle & 0xffff : 0;
}

#endif
