/* Place for flows that are young or sparse. The counterpart is marcato-queue/src/crq/young.rs, which says why. */
#ifndef MARCATO_YOUNG_H
#define MARCATO_YOUNG_H

#include "config.h"
#include "packet.h"

/* Unit of time: steps of 2^20 ns, which wrap after 52 days. */
#define STEP_SHIFT 20

/* Use of an allowance. CPUs that meet in an account may lose each other's bytes: it then lasts a little longer. */
struct account {
	/* Step of the last packet. */
	__u32 since;
	/* Bytes used and not regained, at most the allowance. */
	__u32 used;
	/* Set while the flow has lost the place. */
	__u32 spent;
};

/* Accounts into which flows are hashed, so that no flow can push another one out. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_ACCOUNTS);
	__type(key, __u32);
	__type(value, struct account);
} accounts SEC(".maps");

enum { NO_PLACE, COVERED, OUTGROWN };

/* Hash of a flow, under a secret that strangers do not know. */
INLINE __u32 flow_hash(const struct flow_key *key, __u32 secret)
{
	const __u64 *words = (const void *)key;
	__u64 hash = secret;
#pragma unroll
	for (__u32 at = 0; at < sizeof(*key) / sizeof(*words); at++) {
		hash = (hash ^ words[at]) * 0x9e3779b97f4a7c15;
		hash ^= hash >> 32;
	}
	return hash;
}

/* Takes note of a packet that arrives at `now`, and returns whether its flow's allowance covers it. */
INLINE __u8 young_covers(const struct crq_config *config, __u64 now, const struct packet *packet)
{
	/* A packet that asks for lower effort goes before no other. */
	if (!config->allowance || packet->lower)
		return NO_PLACE;
	__u32 at = flow_hash(&packet->key, config->secret) & (MAX_ACCOUNTS - 1);
	struct account *account = bpf_map_lookup_elem(&accounts, &at);
	if (!account)
		return NO_PLACE;
	__u32 step = now >> STEP_SHIFT, passed = step - account->since, used = account->used, spent = account->spent;
	/* A clock that went back gives nothing back. */
	if (passed <= 0x7fffffff) {
		__u64 regained = (__u64)passed * config->regain;
		used = regained < used ? used - (__u32)regained : 0;
		account->since = step;
	}
	if (used <= config->allowance / 2)
		spent = 0;
	__u64 sum = (__u64)used + packet->len;
	if (sum > config->allowance) {
		sum = config->allowance;
		spent = 1;
	}
	account->used = sum;
	account->spent = spent;
	return spent ? OUTGROWN : COVERED;
}

#endif
