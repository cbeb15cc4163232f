/* Judge of CRQ section III-A1: the majority of all votes. The counterpart is marcato-queue/src/trap/majority.rs. */
#ifndef MARCATO_MAJORITY_H
#define MARCATO_MAJORITY_H

#include "judge.h"

struct majority {
	__u32 responsive;
	__u32 unresponsive;
};

/* Looks for a reduced window in the cycles that the configuration names. */
INLINE __u32 majority_rule(const struct history *history, const struct trap_config *config)
{
	__u32 last = config->last;
	for (__u32 after = 1; after <= 3; after++) {
		if (after < config->first || after > last)
			continue;
		if (history_is_reduced(history, config, last, last - after, 0))
			return ANSWERED + after;
	}
	return REFUSED;
}

INLINE void majority_vote(struct majority *votes, bool answered)
{
	__u32 *count = answered ? &votes->responsive : &votes->unresponsive;
	if (*count != ~0u)
		*count += 1;
}

/* As many votes for as against are enough to be responsive. */
INLINE __u8 majority_verdict(const struct majority *votes)
{
	if (votes->responsive == 0 && votes->unresponsive == 0)
		return UNCLASSIFIED;
	return votes->responsive >= votes->unresponsive ? RESPONSIVE : UNRESPONSIVE;
}

#endif
