/* Marcato's judge: separates responses from chance. The counterpart is marcato-queue/src/trap/marcato.rs, whose table gives
 * the reason for each threshold. */
#ifndef MARCATO_MARCATO_H
#define MARCATO_MARCATO_H

#include "judge.h"

/* Share of votes if all are for a flow. */
#define ONE (1 << 12)
#define RISE (5 * (ONE >> 3))
#define FALL (3 * (ONE >> 3))
#define LEAST_VOTES 3
#define AGE_SHIFT 3
#define QUIET 0x7f
#define STEADY_LOSS 3
#define OVERFLOW 2
#define STEADY_MARKS 6
#define SETTLED 16
#define NOISE_SHIFT 3
#define AFTER_LOSS 20
#define AFTER_MARKS 16
#define AFTER_FEW_MARKS 24
#define AFTER_FEW_MARKS_UNEVENLY 28
#define UNDER_STEADY_LOSS 16
#define UNDER_STEADY_MARKS 40
#define FEW 32
/* Bytes of a full packet. */
#define FULL 1500
#define EVEN (4 << 4)
#define PER_MARK 188
#define VISIBLE (2 * FULL)
/* In 2^-8 of an octave. */
#define FLIGHT_FELL 82
#define QUARTER 106
#define TENTH 39
#define LEAST_FLIGHT 3213
#define GREW 150
#define WAIT 32
#define KNOWN 4

/* Exponentially aged share of votes for a flow. */
struct share {
	/* In units of 1/ONE. */
	__u16 part;
	/* Votes so far, counted up to 2^AGE_SHIFT. */
	__u16 votes;
};

/* State of the judge for one flow. */
struct marcato {
	/* Share of answered signals, by kind of signal. */
	struct share shares[SIGNALS];
	/* Share of controls in which the rate fell. */
	struct share control;
	/* Variation of the rate: mean absolute second difference of its logarithm, in 2^-12 of an octave. */
	__u16 noise_mean;
	/* Logarithms of the last rates, in 2^-8 of an octave, latest first. */
	__s16 rates[KEPT];
	/* Samples of the variation, counted up to 255. */
	__u8 noise_samples;
	/* Cycles to end before the next control. */
	__u8 control_in;
	/* Number of known rates, counted up to 3. */
	__u8 known;
	__u8 pad;
	/* Logarithms of the bytes in flight at the end of the last cycles, likewise; 0 if not known. */
	__s16 flights[KEPT];
	/* A wait for the flight to fall after a signal: its logarithm and the rate's in the cycle at the signal. */
	__s16 wait_flight;
	__s16 wait_rate;
	/* Cycles to end before the wait is over, of which one with a flight that is known and grows no more counts
	 * as KNOWN; 0 if there is none. */
	__u8 wait_cycles;
	__u8 wait_signal;
	/* The flow had its vote on the signal; a cycle was reduced. */
	__u8 wait_voted;
	__u8 wait_reduced;
	__u16 pad2;
};

/* Signals of one cycle, as far as they determine the expected response. */
struct signals {
	/* Number of marks; 0 for losses. */
	__u32 marks;
	/* Reduction in bytes that is enough for a response. */
	__u32 reduction;
	/* Fall of the rate that is beyond chance, in 1/16 of the variation. */
	__u32 factor;
	/* So many of the last cycles were signalled that any fall follows a signal. */
	__u8 steady;
	/* A response that cannot be seen counts as no refusal: the marks are few. */
	__u8 excused;
	__u16 pad;
};

INLINE void share_vote(struct share *share, bool hit)
{
	if (share->votes < 1 << AGE_SHIFT)
		share->votes += 1;
	__u32 shift = log2_whole(share->votes), target = hit ? ONE : 0;
	share->part = share->part - (share->part >> shift) + (target >> shift);
}

/* Lets the votes so far count as enough for a verdict. */
INLINE void share_assure(struct share *share)
{
	if (share->votes < LEAST_VOTES)
		share->votes = LEAST_VOTES;
}

/* Takes a second difference in 2^-8 of an octave into account. */
INLINE void noise_take(struct marcato *judge, __u32 difference)
{
	/* A sample counts as twice the mean at most: the sender's own responses are no noise. */
	__u32 most = (judge->noise_mean >> 3) + 1;
	if (judge->noise_samples >= 4 && difference > most)
		difference = most;
	if (judge->noise_samples < 255)
		judge->noise_samples += 1;
	__u32 shift = log2_whole(judge->noise_samples);
	if (shift > NOISE_SHIFT)
		shift = NOISE_SHIFT;
	judge->noise_mean = judge->noise_mean - (judge->noise_mean >> shift) + ((difference << 4) >> shift);
}

/* Logarithm to base 2 of `number`, or of 1 if it is 0, in 2^-8, rounded down. */
INLINE __s32 logarithm(__u32 number)
{
	if (number == 0)
		number = 1;
	__u32 whole = log2_whole(number) & 31;
	/* Between 1 and 2, with 31 binary places. */
	__u64 mantissa = (__u64)number << (31 - whole);
	__s32 logarithm = whole;
	for (int place = 0; place < 8; place++) {
		mantissa = (mantissa * mantissa) >> 31;
		__u32 carry = mantissa >> 32 != 0;
		mantissa >>= carry;
		logarithm = logarithm << 1 | carry;
	}
	return logarithm;
}

/* Records the rate of a cycle that ended and how far it leaves the line through the two before, and what was in flight. */
GLOBAL int marcato_record(struct marcato *judge, __u32 bytes, __u32 ticks, __u32 flight)
{
	if (!judge)
		return 0;
	for (int age = KEPT - 1; age > 0; age--) {
		judge->rates[age] = judge->rates[age - 1];
		judge->flights[age] = judge->flights[age - 1];
	}
	judge->rates[0] = logarithm(bytes) - logarithm(ticks);
	judge->flights[0] = logarithm(flight);
	if (judge->known < 3)
		judge->known += 1;
	if (judge->known == 3) {
		__s32 difference = judge->rates[0] - 2 * judge->rates[1] + judge->rates[2];
		__u32 size = difference < 0 ? -difference : difference;
		noise_take(judge, size < 1 << 8 ? size : 1 << 8);
	}
	return 0;
}

/* Forgets what was in flight, as another queue holds more or less of it. */
INLINE void marcato_changed_queue(struct marcato *judge)
{
	for (int age = 0; age < KEPT; age++)
		judge->flights[age] = 0;
	judge->wait_cycles = 0;
}

/* Whether the flow's acknowledgements tell what is in flight, or did before a loss that is now repaired. */
GLOBAL int is_acknowledged(const struct marcato *judge)
{
	if (!judge)
		return 0;
	bool known = judge->wait_cycles > 0;
	for (int age = 0; age < KEPT; age++)
		known |= judge->flights[age] > 0;
	return known;
}

/* Logarithm of the flight that a signal `last` cycles ago is to be compared with: the least of that cycle and of the two
 * before, unless it grew by half in these; 0 if not known. */
GLOBAL int flight_before(const struct marcato *judge, __u32 last)
{
	if (!judge)
		return 0;
	__s32 now = judge->flights[last & (KEPT - 1)], least = now;
	for (int earlier = 1; earlier <= 2; earlier++) {
		__s32 flight = judge->flights[(last + earlier) & (KEPT - 1)];
		if (flight > 0 && flight < least)
			least = flight;
	}
	return now - least >= GREW ? now : least;
}

/* Whether less was in flight in each of the last two cycles than in one with the logarithm `before`, by as much as a
 * response leaves away. */
GLOBAL int has_lower_flight(const struct marcato *judge, __s32 before)
{
	if (!judge)
		return 0;
	__s32 now = judge->flights[0], earlier = judge->flights[1];
	return before >= LEAST_FLIGHT && now > 0 && before - now >= FLIGHT_FELL && earlier > 0 &&
	       before - earlier >= FLIGHT_FELL;
}

/* Looks for the awaited flight in the cycle that ended. */
GLOBAL int marcato_confirm(struct marcato *judge)
{
	if (!judge || judge->wait_cycles == 0)
		return 0;
	/* While the flight grows, the sender cannot know of the loss yet. */
	__u8 passed = judge->flights[0] > 0 && judge->flights[0] - judge->wait_flight < TENTH ? KNOWN : 1;
	judge->wait_cycles = judge->wait_cycles > passed ? judge->wait_cycles - passed : 0;
	if (judge->wait_rate - judge->rates[0] >= TENTH)
		judge->wait_reduced = 1;
	struct share *share = &judge->shares[judge->wait_signal & 1];
	if (judge->wait_reduced && has_lower_flight(judge, judge->wait_flight)) {
		if (!judge->wait_voted)
			share_vote(share, true);
		share_assure(share);
		judge->wait_cycles = 0;
	} else if (judge->wait_cycles == 0 && !judge->wait_voted) {
		share_vote(share, false);
	}
	return 0;
}

/* Begins to wait for a lower flight than in the cycle `last` cycles ago, if it is known and none is awaited. */
INLINE void await_flight(struct marcato *judge, __u32 last, __u32 kind, bool voted, bool reduced)
{
	__s16 flight = flight_before(judge, last);
	if (judge->wait_cycles > 0 || flight < LEAST_FLIGHT)
		return;
	judge->wait_flight = flight;
	judge->wait_rate = judge->rates[last & (KEPT - 1)];
	judge->wait_cycles = WAIT;
	judge->wait_signal = kind;
	judge->wait_voted = voted;
	judge->wait_reduced = reduced;
	marcato_confirm(judge);
}

/* Whether so many of the last cycles were signalled, by marks or by losses, that any fall follows a signal. */
GLOBAL int is_steady(const struct trap_config *config, const struct history *history, __u32 marks)
{
	if (!config || !history)
		return 0;
	if (marks > 0)
		return count_ones(history->signalled) >= STEADY_MARKS;
	/* The judged cycle and the losses that follow it without a gap are one overflow of the queue. */
	__u8 later = 0;
	bool unbroken = history->signalled >> (config->last & 7) & 1;
	for (int after = 1; after <= OVERFLOW; after++) {
		if (after > config->last)
			break;
		__u8 cycle = 1 << ((config->last - after) & 7);
		unbroken = unbroken && history->signalled & cycle;
		if (unbroken)
			later |= cycle;
	}
	return count_ones(history->signalled & ~later) >= STEADY_LOSS;
}

/* Response that `marks` in the cycle at the signal ask for. */
INLINE struct signals marcato_signals(const struct marcato *judge, const struct trap_config *config,
				      const struct history *history, __u32 marks)
{
	__u32 before = history_window(history, config->last).bytes;
	/* The marks are so few that a response may be too small to see. */
	bool few = marks > 0 && marks * (FEW * FULL) < before;
	struct signals signals = { .marks = marks, .reduction = PER_MARK * marks };
	if (few && signals.reduction < VISIBLE)
		signals.reduction = VISIBLE;
	signals.excused = few && judge->noise_mean < EVEN;
	signals.steady = is_steady(config, history, marks) != 0;
	if (marks == 0)
		signals.factor = signals.steady ? UNDER_STEADY_LOSS : AFTER_LOSS;
	else if (signals.steady)
		signals.factor = UNDER_STEADY_MARKS;
	else if (signals.excused)
		signals.factor = AFTER_FEW_MARKS;
	else
		signals.factor = few ? AFTER_FEW_MARKS_UNEVENLY : AFTER_MARKS;
	return signals;
}

/* Fall of the logarithm of the rate between two cycles, given by age; 0 if it rose. */
INLINE __u32 marcato_fall(const struct marcato *judge, __u32 before, __u32 after)
{
	__s32 fall = judge->rates[before & (KEPT - 1)] - judge->rates[after & (KEPT - 1)];
	return fall > 0 ? fall : 0;
}

/* Whether the window `after` cycles ago is lower than the one `before` cycles ago by at least a response, and the rate fell by
 * more than chance explains. */
INLINE bool is_low(const struct marcato *judge, const struct trap_config *config, const struct history *history,
		   __u32 before, __u32 after, const struct signals *signals)
{
	__u32 fall = marcato_fall(judge, before, after);
	return fall > 0 && fall << 8 >= judge->noise_mean * signals->factor &&
	       history_is_reduced(history, config, before, after, signals->reduction);
}

/* Whether the window `after` cycles ago answers the signal in the one `before` cycles ago. */
INLINE bool is_answer(const struct marcato *judge, const struct trap_config *config, const struct history *history,
		      __u32 before, __u32 after, const struct signals *signals)
{
	if (!is_low(judge, config, history, before, after, signals))
		return false;
	/* Under steady signals the next window must be low, too. */
	return !signals->steady || (after > 0 && is_low(judge, config, history, before, after - 1, signals));
}

/* First cycle after the one at the signal that is a response, or 0. */
GLOBAL int marcato_answer(const struct marcato *judge, const struct trap_config *config, const struct history *history,
			  const struct signals *signals)
{
	if (!judge || !config || !history || !signals)
		return 0;
	__u32 last = config->last;
	for (__u32 after = 1; after <= 3; after++) {
		if (after < config->first || after > last)
			continue;
		if (is_answer(judge, config, history, last, last - after, signals))
			return after;
	}
	return 0;
}

/* Whether the flow was still answering earlier signals in the cycle at this one. */
GLOBAL int marcato_was_answering(const struct marcato *judge, const struct trap_config *config,
				 const struct history *history, const struct signals *signals)
{
	if (!judge || !config || !history || !signals)
		return 0;
	return is_answer(judge, config, history, config->last + 1, config->last, signals);
}

/* First cycle with a window that is reduced by so many bytes, whatever the variation: from the cycle at the signal or one of
 * the `earlier` ones before; or 0. */
GLOBAL int marcato_reduced(const struct marcato *judge, const struct trap_config *config, const struct history *history,
			   __u32 reduction, __u32 earlier)
{
	if (!judge || !config || !history)
		return 0;
	__u32 last = config->last;
	for (__u32 after = 1; after <= 3; after++) {
		if (after < config->first || after > last)
			continue;
		for (__u32 more = 0; more < 2 && more <= earlier; more++) {
			if (marcato_fall(judge, last + more, last - after) > 0 &&
			    history_is_reduced(history, config, last + more, last - after, reduction))
				return after;
		}
	}
	return 0;
}

/* Rules on the cycle in which the queue gave `count` times the signal `kind`, and votes. */
GLOBAL int marcato_rule(struct marcato *judge, const struct trap_config *config, const struct history *history, __u32 kind,
			__u32 count)
{
	if (!judge || !config || !history)
		return WITHHELD;
	__u32 last = config->last;
	struct signals signals = marcato_signals(judge, config, history, kind == ECN ? count : 0);
	struct share *share = &judge->shares[kind & 1];
	__s32 before = flight_before(judge, last), now = judge->flights[0];
	/* From the cycle before as well: what came late in one came early in the other. */
	__u32 reduced = marcato_reduced(judge, config, history, signals.reduction, 1) & 3;
	__u32 after = marcato_answer(judge, config, history, &signals) & 3;
	/* RFC 6675 section 5: losses while others are repaired are answered together. A flow beside a flood repairs
	 * most of the time: a rate that falls by a quarter counts all the same. */
	if (kind == LOSS && before == 0 && is_acknowledged(judge)) {
		if (!after || marcato_fall(judge, last, last - after) < QUARTER)
			return WITHHELD;
		share_vote(share, true);
		return ANSWERED + after;
	}
	if (after) {
		share_vote(share, true);
		await_flight(judge, last, kind, true, reduced);
		return ANSWERED + after;
	}
	if (reduced && has_lower_flight(judge, before)) {
		share_vote(share, true);
		share_assure(share);
		return ANSWERED + reduced;
	}
	if (kind == LOSS && is_acknowledged(judge)) {
		/* The sender cannot know of the loss yet, repairs it, or has sent less since. */
		if (before >= LEAST_FLIGHT && (now == 0 || now - before >= TENTH || reduced)) {
			await_flight(judge, last, kind, false, reduced);
			return WITHHELD;
		}
	}
	/* RFC 3168 section 6.1.2: one reaction per window, and the flow was still answering earlier signals. */
	if (signals.excused || marcato_was_answering(judge, config, history, &signals))
		return WITHHELD;
	/* Slow start's variation may hide a response: it is counted, but decides nothing. */
	if (judge->noise_samples <= SETTLED) {
		after = marcato_reduced(judge, config, history, signals.reduction, 0) & 3;
		if (after)
			return ANSWERED + after;
	}
	share_vote(share, false);
	return REFUSED;
}

/* Votes on a stretch of cycles without signals: does the rate fall all the same? */
GLOBAL int marcato_control(struct marcato *judge, const struct trap_config *config, const struct history *history)
{
	if (!judge || !config || !history)
		return 0;
	if (judge->control_in > 0) {
		judge->control_in -= 1;
		return 0;
	}
	if ((history->signalled & QUIET) == 0 && history_is_large_enough(history, config)) {
		struct signals signals = marcato_signals(judge, config, history, 0);
		__s32 before = flight_before(judge, config->last);
		/* A repair still belongs to the signals before. */
		if (judge->wait_cycles > 0 && judge->flights[0] == 0)
			return 0;
		bool falls = before >= LEAST_FLIGHT ?
				     has_lower_flight(judge, before) :
				     marcato_answer(judge, config, history, &signals) != 0;
		share_vote(&judge->control, falls);
		/* The next control shares no cycle with this one. */
		judge->control_in = config->last;
	}
	return 0;
}

/* Verdict that follows `before`. */
INLINE __u8 marcato_verdict(const struct marcato *judge, __u32 kind, __u8 before)
{
	const struct share *share = &judge->shares[kind & 1];
	__u32 part = share->part > judge->control.part ? share->part - judge->control.part : 0;
	if (share->votes < LEAST_VOTES)
		return UNCLASSIFIED;
	if (part >= RISE)
		return RESPONSIVE;
	return part <= FALL ? UNRESPONSIVE : before;
}

#endif
