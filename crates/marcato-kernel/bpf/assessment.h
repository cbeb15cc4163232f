/* Signals, windows and verdicts of one flow. The counterpart is marcato-queue/src/trap/assessment.rs.
 * CRQ sections III-A1 and III-B3. */
#ifndef MARCATO_ASSESSMENT_H
#define MARCATO_ASSESSMENT_H

#include "majority.h"
#include "marcato.h"

/* Cycles whose signals are counted, the current one included: four slots of 8 bits fill a word. */
#define SLOTS 4

struct signal_window {
	/* Numbers of signals in the last cycles, 8 bits each: the lowest are the current one's. */
	__u32 slots;
	struct majority votes;
};

struct scores {
	__u32 cycles;
	__u32 responsive[SIGNALS];
	__u32 unresponsive[SIGNALS];
};

struct assessment {
	__u8 verdicts[SIGNALS];
	/* Cycles to end before signals count again. CRQ section III-B3. */
	__u8 hold;
	__u8 pad;
	/* Age from which on the signals of a cycle are answered or given up, by kind. */
	__u8 settled[SIGNALS];
	__u16 pad2;
	struct scores scores;
	struct signal_window signal_windows[SIGNALS];
	struct marcato marcato;
	struct history history;
};

INLINE void assessment_init(struct assessment *assessment)
{
	assessment->history.signalled = 0xff;
	assessment->settled[LOSS] = 0xff;
	assessment->settled[ECN] = 0xff;
}

/* Name of the current cycle. */
INLINE __u8 assessment_cycle_id(const struct assessment *assessment)
{
	return assessment->scores.cycles;
}

/* Takes `count` signals by packets of the cycle `came` into account. */
INLINE void assessment_signal(struct assessment *assessment, const struct trap_config *config, __u32 signal, __u8 came,
			      __u32 count)
{
	__u8 age = 0;
	if (config->booking == BOOKING_ARRIVAL)
		age = assessment_cycle_id(assessment) - came;
	if (age >= SLOTS || count == 0)
		return;
	assessment->history.signalled |= 1 << age;
	/* CRQ section III-B3: no reassessment right after a change of queue. */
	if (assessment->hold > 0)
		return;
	__u32 shift = 8 * age;
	for (__u32 kind = 0; kind < SIGNALS; kind++) {
		if (kind != signal && config->evidence != EVIDENCE_COMBINED)
			continue;
		if (age >= assessment->settled[kind])
			continue;
		__u32 *slots = &assessment->signal_windows[kind].slots;
		/* The authors' losses run over into the slot above, their marks do not. */
		if (config->counting == COUNTING_AUTHORS && signal == LOSS) {
			*slots += count << shift;
			continue;
		}
		__u32 room = 0xff - (*slots >> shift & 0xff);
		*slots += (count < room ? count : room) << shift;
	}
}

INLINE void assessment_changed_queue(struct assessment *assessment, const struct trap_config *config)
{
	/* CRQ section III-B3: the observed signals are reset. */
	for (int kind = 0; kind < SIGNALS; kind++) {
		assessment->signal_windows[kind].slots = 0;
		/* What the other queue may still do to packets in it is no signal of this one. */
		if (config->judge == JUDGE_MARCATO)
			assessment->settled[kind] = 0;
	}
	if (config->judge == JUDGE_MARCATO)
		marcato_changed_queue(&assessment->marcato);
	assessment->hold = config->reassess;
}

/* Forgets all pending signals, as no cycle follows that could be compared with the last. */
INLINE void assessment_forget(struct assessment *assessment)
{
	for (int age = 0; age < KEPT; age++) {
		assessment->history.windows[age].bytes = 0;
		assessment->history.windows[age].ticks = 0;
	}
	for (int kind = 0; kind < SIGNALS; kind++)
		assessment->signal_windows[kind].slots = 0;
	assessment->history.signalled = 0xff;
	assessment->marcato.known = 0;
	marcato_changed_queue(&assessment->marcato);
}

/* Judges the cycle in which a response is due by now, if there was a signal in it. */
GLOBAL int assessment_judge(struct assessment *assessment, const struct trap_config *config, __u32 kind)
{
	if (!assessment || !config || kind >= SIGNALS)
		return 0;
	struct signal_window *signal_window = &assessment->signal_windows[kind];
	__u32 last = config->last & 3;
	__u32 count = signal_window->slots >> (8 * last) & 0xff;
	if (count == 0 || !history_is_large_enough(&assessment->history, config))
		return 0;
	__u32 ruling;
	if (config->judge == JUDGE_MAJORITY)
		ruling = majority_rule(&assessment->history, config);
	else
		ruling = marcato_rule(&assessment->marcato, config, &assessment->history, kind, count);
	if (ruling == WITHHELD)
		return 0;
	majority_vote(&signal_window->votes, ruling != REFUSED);
	if (config->judge == JUDGE_MAJORITY) {
		assessment->verdicts[kind] = majority_verdict(&signal_window->votes);
		return 0;
	}
	/* RFC 3168 section 6.1.2: all that was signalled up to the answer is answered, and all that was signalled while none
	 * came belongs to the same refusal. Signals of so many cycles, the current one included, are still open. */
	__u32 open = ruling == REFUSED ? 0 : (last - (ruling - ANSWERED)) & 3;
	signal_window->slots &= (1u << (8 * open)) - 1;
	assessment->settled[kind] = open;
	assessment->verdicts[kind] = marcato_verdict(&assessment->marcato, kind, assessment->verdicts[kind]);
	return 0;
}

/* Ends a cycle of `bytes` and `ticks`, at whose end `flight` bytes were in flight. */
GLOBAL int assessment_close(struct assessment *assessment, const struct trap_config *config, __u32 bytes, __u32 ticks,
			    __u32 flight)
{
	if (!assessment || !config)
		return 0;
	bool marcato = config->judge == JUDGE_MARCATO;
	for (int age = KEPT - 1; age > 0; age--)
		assessment->history.windows[age] = assessment->history.windows[age - 1];
	assessment->history.windows[0].bytes = bytes;
	assessment->history.windows[0].ticks = ticks;
	if (marcato) {
		marcato_record(&assessment->marcato, bytes, ticks, flight);
		marcato_confirm(&assessment->marcato);
	}
	assessment_judge(assessment, config, LOSS);
	assessment_judge(assessment, config, ECN);
	if (marcato)
		marcato_control(&assessment->marcato, config, &assessment->history);
	assessment->scores.cycles += 1;
	for (int kind = 0; kind < SIGNALS; kind++) {
		/* A control may have changed the share that is subtracted. */
		if (marcato)
			assessment->verdicts[kind] =
				marcato_verdict(&assessment->marcato, kind, assessment->verdicts[kind]);
		if (assessment->verdicts[kind] == RESPONSIVE)
			assessment->scores.responsive[kind] += 1;
		if (assessment->verdicts[kind] == UNRESPONSIVE)
			assessment->scores.unresponsive[kind] += 1;
		assessment->signal_windows[kind].slots <<= 8;
		if (assessment->settled[kind] < 0xff)
			assessment->settled[kind] += 1;
	}
	assessment->history.signalled <<= 1;
	if (assessment->hold > 0)
		assessment->hold -= 1;
	return 0;
}

#endif
