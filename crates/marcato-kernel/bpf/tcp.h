/* TCPTrap: cycles from sequence numbers, acknowledgements and timestamps. The counterpart is marcato-queue/src/trap/tcp.rs,
 * which says why. CRQ section III-A2 and Fig. 2, RFC 9293, RFC 7323. */
#ifndef MARCATO_TCP_H
#define MARCATO_TCP_H

#include "config.h"
#include "packet.h"
#include "rtt.h"

enum { STAGE_IDLE, STAGE_OUT, STAGE_BACK };

struct number {
	__u32 number;
	__u32 some;
};

struct tcp_trap {
	struct number sent;
	struct number received;
	__u32 expected;
	__u32 answer;
	__u32 since;
	__u32 owed_since;
	struct number owed;
	__u32 near;
	__u32 mark;
	__u32 marked;
	struct number value;
	struct number reverse_value;
	__u32 rtt;
	__u32 last;
	__u32 recover;
	__u8 stage;
	__u8 echo_stage;
	__u8 answered;
	__u8 recovering;
};

/* Whether `a` is `b` or later, modulo 2^32. RFC 9293 section 3.4, RFC 7323 section 5. */
INLINE bool at_or_after(__u32 a, __u32 b)
{
	return (__s32)(a - b) >= 0;
}

INLINE void number_set(struct number *number, __u32 to)
{
	number->number = to;
	number->some = 1;
}

INLINE void number_clear(struct number *number)
{
	number->number = 0;
	number->some = 0;
}

/* Moves up to `to` if that is later, and returns whether it was. */
INLINE bool number_advance(struct number *number, __u32 to)
{
	bool newer = !number->some || (to != number->number && at_or_after(to, number->number));
	if (newer)
		number_set(number, to);
	return newer;
}

/* Bytes sent and not acknowledged; 0 where acknowledgements do not tell. */
INLINE __u32 tcp_flight(const struct tcp_trap *tcp)
{
	if (!tcp->answered || !tcp->sent.some || tcp->recovering)
		return 0;
	/* Acknowledgements may be seen of what was not seen sent. */
	return at_or_after(tcp->answer, tcp->sent.number) ? 0 : tcp->sent.number - tcp->answer;
}

/* The authors' cycle: data and its acknowledgement. */
INLINE bool tcp_forward_half(struct tcp_trap *tcp, const struct packet *packet)
{
	bool known = tcp->sent.some;
	number_set(&tcp->sent, packet->seq);
	if (known && tcp->answer < tcp->expected)
		return false;
	tcp->expected = packet->seq + packet->payload;
	return known;
}

/* CRQ Fig. 2, this host's segment. */
INLINE bool tcp_forward_matched(struct tcp_trap *tcp, const struct packet *packet)
{
	bool ends = tcp->stage == STAGE_BACK && (packet->flags & TCP_ACK) && at_or_after(packet->ack, tcp->answer);
	if (ends)
		tcp->stage = STAGE_IDLE;
	__u32 end = packet->seq + packet_sequence_len(packet);
	bool fresh = number_advance(&tcp->sent, end) && packet_sequence_len(packet) > 0;
	if (tcp->stage == STAGE_IDLE && fresh) {
		tcp->stage = STAGE_OUT;
		tcp->expected = end;
	}
	return ends;
}

/* CRQ Fig. 2, the other host's segment. */
INLINE void tcp_backward_matched(struct tcp_trap *tcp, const struct packet *packet)
{
	number_advance(&tcp->received, packet->seq + packet_sequence_len(packet));
	if (tcp->stage == STAGE_OUT && (packet->flags & TCP_ACK) && at_or_after(packet->ack, tcp->expected)) {
		tcp->stage = STAGE_BACK;
		tcp->answer = tcp->received.number;
	}
}

/* The round trip by this host's timestamps. */
INLINE void tcp_forward_timestamps(struct tcp_trap *tcp, __u32 now, const struct packet *packet)
{
	if (tcp->echo_stage == STAGE_BACK && (packet->flags & TCP_ACK) && at_or_after(packet->echo, tcp->mark)) {
		__u32 sample = now - tcp->marked;
		if (sample == 0)
			sample = 1;
		/* RFC 7323 section 4.3: an echo may be late by a round trip, but seldom twice in a row. */
		rtt_sample(&tcp->rtt, tcp->last && tcp->last < sample ? tcp->last : sample);
		tcp->last = sample;
		tcp->echo_stage = STAGE_IDLE;
	}
	if (tcp->echo_stage != STAGE_IDLE && now - tcp->marked > MAX_RTT)
		tcp->echo_stage = STAGE_IDLE;
	/* Only the first packet of a clock's tick. */
	if (number_advance(&tcp->value, packet->value) && tcp->echo_stage == STAGE_IDLE) {
		tcp->echo_stage = STAGE_OUT;
		tcp->mark = packet->value;
		tcp->marked = now;
	}
}

/* The round trip by this host's segment. */
INLINE void tcp_forward_round_trip(struct tcp_trap *tcp, __u32 now, const struct packet *packet)
{
	/* RFC 9293 section 3.5.2: the numbers of a reset mean nothing. */
	if (packet->flags & TCP_RST)
		return;
	if (tcp->owed.some && (packet->flags & TCP_ACK) && at_or_after(packet->ack, tcp->owed.number)) {
		__u32 near = now - tcp->owed_since;
		if (near == 0)
			near = 1;
		tcp->near = tcp->near && tcp->near < near ? tcp->near : near;
		number_clear(&tcp->owed);
	}
	/* RFC 6298 section 3: only new data begin a measurement. */
	__u32 end = packet->seq + packet_sequence_len(packet);
	bool fresh = number_advance(&tcp->sent, end) && packet_sequence_len(packet) > 0;
	if (tcp->stage == STAGE_OUT && now - tcp->since > MAX_RTT)
		tcp->stage = STAGE_IDLE;
	if (tcp->stage == STAGE_IDLE && fresh) {
		tcp->stage = STAGE_OUT;
		tcp->expected = end;
		tcp->since = now;
	}
	if (packet->has_timestamps)
		tcp_forward_timestamps(tcp, now, packet);
}

/* An acknowledgement of the other host: a second one alike tells of a loss, which is repaired once all that was sent by
 * then is acknowledged. RFC 5681 section 3.2, RFC 6582. */
INLINE void tcp_follow_acknowledgement(struct tcp_trap *tcp, const struct packet *packet)
{
	if (!tcp->answered || (packet->ack != tcp->answer && at_or_after(packet->ack, tcp->answer))) {
		tcp->answer = packet->ack;
		tcp->answered = 1;
		if (at_or_after(packet->ack, tcp->recover))
			tcp->recovering = 0;
	} else if (packet->ack == tcp->answer && packet_sequence_len(packet) == 0 && !tcp->recovering &&
		   tcp->sent.some && !at_or_after(tcp->answer, tcp->sent.number)) {
		tcp->recovering = 1;
		tcp->recover = tcp->sent.number;
	}
}

/* The round trip by the other host's segment. */
INLINE void tcp_backward_round_trip(struct tcp_trap *tcp, __u32 now, const struct packet *packet)
{
	if (packet->flags & TCP_RST)
		return;
	__u32 end = packet->seq + packet_sequence_len(packet);
	bool fresh = number_advance(&tcp->received, end) && packet_sequence_len(packet) > 0;
	if (fresh && !tcp->owed.some) {
		number_set(&tcp->owed, end);
		tcp->owed_since = now;
	}
	if (packet->flags & TCP_ACK)
		tcp_follow_acknowledgement(tcp, packet);
	if (tcp->stage == STAGE_OUT && (packet->flags & TCP_ACK) && at_or_after(packet->ack, tcp->expected)) {
		tcp->stage = STAGE_IDLE;
		/* Timestamps measure the whole round trip, and then this half is not needed. */
		if (!tcp->value.some) {
			__u32 far = now - tcp->since;
			__u32 near = tcp->near ? tcp->near : far;
			__u32 sum = far + near;
			rtt_sample(&tcp->rtt, sum < far ? ~0u : sum);
		}
	}
	if (packet->has_timestamps) {
		/* Only the first packet of the other clock's tick. */
		bool first = number_advance(&tcp->reverse_value, packet->value);
		if (tcp->echo_stage == STAGE_OUT && first && (packet->flags & TCP_ACK) &&
		    at_or_after(packet->echo, tcp->mark)) {
			tcp->echo_stage = STAGE_BACK;
			tcp->mark = packet->value;
		}
	}
}

/* Takes a segment of this host, and returns whether it ends a cycle. */
INLINE bool tcp_forward(struct tcp_trap *tcp, __u8 cycles, __u32 now, const struct packet *packet)
{
	if (cycles != CYCLES_HALF && (packet->flags & TCP_SYN)) {
		/* RFC 9293 section 3.4.1: a new connection has an initial sequence number of its own. */
		number_clear(&tcp->sent);
		number_clear(&tcp->value);
		tcp->stage = STAGE_IDLE;
		tcp->echo_stage = STAGE_IDLE;
		tcp->last = 0;
		tcp->answered = 0;
		tcp->recovering = 0;
	}
	if (cycles == CYCLES_HALF)
		return tcp_forward_half(tcp, packet);
	if (cycles == CYCLES_MATCHED)
		return tcp_forward_matched(tcp, packet);
	tcp_forward_round_trip(tcp, now, packet);
	return false;
}

/* Takes a segment of the other host. */
INLINE void tcp_backward(struct tcp_trap *tcp, __u8 cycles, __u32 now, const struct packet *packet)
{
	if (cycles != CYCLES_HALF && (packet->flags & TCP_SYN)) {
		number_clear(&tcp->received);
		number_clear(&tcp->reverse_value);
		number_clear(&tcp->owed);
		tcp->answered = 0;
		tcp->recovering = 0;
	}
	if (cycles == CYCLES_HALF) {
		if (packet->flags & TCP_ACK)
			tcp->answer = packet->ack;
	} else if (cycles == CYCLES_MATCHED) {
		tcp_backward_matched(tcp, packet);
	} else {
		tcp_backward_round_trip(tcp, now, packet);
	}
}

#endif
