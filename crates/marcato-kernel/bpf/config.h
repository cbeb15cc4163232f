/* Rules of the traps, and what the loader knows of the device. The counterpart of `struct trap_config` is `TrapConfig` in
 * marcato-queue/src/trap/config.rs; both and `struct crq_config` are laid out again in marcato-kernel/src/layout.rs. */
#ifndef MARCATO_CONFIG_H
#define MARCATO_CONFIG_H

#include "limits.h"
#include "types.h"

enum { CYCLES_HALF, CYCLES_MATCHED, CYCLES_ROUND_TRIP };
enum { WINDOW_BYTES, WINDOW_RATE };
enum { FLOOR_AT_SIGNAL, FLOOR_AT_RESPONSE };
enum { JUDGE_MAJORITY, JUDGE_MARCATO };
enum { EVIDENCE_SEPARATE, EVIDENCE_COMBINED };
enum { BOOKING_GIVEN, BOOKING_ARRIVAL };
enum { COUNTING_EXACT, COUNTING_AUTHORS };

struct trap_config {
	__u8 cycles;
	__u8 window;
	__u8 threshold;
	__u8 floor;
	__u8 first;
	__u8 last;
	__u8 judge;
	__u8 evidence;
	__u8 booking;
	__u8 counting;
	__u8 reassess;
	__u8 quic_rule;
	__u32 floor_bytes;
};

/* Which UDP flows are QUIC. `QuicRule` in marcato-queue/src/crq/config.rs. */
enum { QUIC_FIRST_BIT, QUIC_VERSION, QUIC_HANDSHAKE };

enum { LOSS, ECN, SIGNALS };
enum { UNCLASSIFIED, RESPONSIVE, UNRESPONSIVE, VERDICTS };
enum { STANDARD_QUEUE, RESPONSIVE_QUEUE, YOUNG_QUEUE, QUEUES };
/* Verdicts that admit a flow to the responsive queue. `Admission` in marcato-queue/src/crq/config.rs. */
enum { ADMIT_LOSS, ADMIT_ECN, ADMIT_ANY };

enum { CODELS = 2 };

struct crq_config {
	struct trap_config trap;
	/* Priorities that name the HTB classes, by queue; 0 leaves packets as they are. */
	__u32 priority[QUEUES];
	/* Network namespace and number of the device. */
	__u32 netns;
	__u32 ifindex;
	/* Bytes before the IP header: 14 with Ethernet, 0 without a link-layer header. */
	__u32 link_header;
	__u32 admission;
	/* The same of packets of the other direction, and the number of the device that they leave by; 0 if they enter by the
	 * device itself. */
	__u32 reverse_link_header;
	__u32 reverse;
	/* Bytes that a flow may send as a young one, 0 without a place for these, and bytes that it regains in a step. */
	__u32 allowance;
	__u32 regain;
	/* Secret of the hash by which flows share accounts. */
	__u32 secret;
	/* Side on which packets have their subscriber, 0 without subscribers, and the generation of these that counts. */
	__u32 side;
	__u32 generation;
	/* Code of CoDel in the kernel, first address and the one after the last, for kernels that give no reason when CoDel
	 * drops: of sch_codel and of sch_fq_codel. Zeros where it is not known. */
	__u64 codel[CODELS][2];
};

struct note {
	char text[NOTE_LENGTH];
};

#endif
