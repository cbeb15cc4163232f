/* Bounds of everything that traffic can grow. One file, so that an operator can read them at once. */
#ifndef MARCATO_LIMITS_H
#define MARCATO_LIMITS_H

/* Flows with a state. The loader may set another number; when the map is full, the flow that was seen least recently
 * makes room. */
#define MAX_FLOWS 16384
/* UDP flows that have sent a long header of QUIC, but not yet a short one after both ends' long headers. */
#define MAX_GREETINGS 4096

/* Accounts of young flows: a power of two. */
#define MAX_ACCOUNTS 16384

/* Prefixes of subscribers: twice as many as count at a time. */
#define MAX_PREFIXES (1 << 18)
/* Subscribers with a class. The loader sets it. */
#define MAX_SUBSCRIBERS 20000
/* Handle of the queue for packets of no subscriber. */
#define OTHERS 0x0fff

/* VLAN tags before the IP header: one of a provider and one of a customer. */
#define MAX_VLAN_TAGS 2
/* IPv6 extension headers that are skipped. */
#define MAX_EXTENSION_HEADERS 8
/* Offset in a packet up to which its bytes are read in place: the verifier asks for a bound. */
#define MAX_LINEAR_OFFSET 0x3fff
/* Bytes of TCP options: a data offset of 15 words less the fixed 20 bytes. RFC 9293 section 3.1. */
#define MAX_TCP_OPTIONS 40

/* Packets of one list that a dequeue event reports. Linux dequeues 8 at a time (`qdisc_restart`), and the list may begin
 * with one more. */
#define MAX_DEQUEUED 16

/* Rules of marks, of which the first that fits counts. */
#define MAX_MARK_RULES 64

/* Boundaries between levels in the stream of a socket, as user space publishes them. */
#define MAX_BOUNDARIES 64
/* Runs of bytes of one level that are known of what a socket has received: a power of two. */
#define MAX_RUNS 64
/* Peers that have refused the TCP option. The one that was seen least recently makes room. */
#define MAX_REFUSING_PEERS 4096

/* Text that the loader keeps beside the configuration. */
#define NOTE_LENGTH 16384

/* Attempts to enter a flow's state that another CPU holds. A packet that gives up is forwarded, but not assessed. */
#define MAX_ENTRY_ATTEMPTS 512

#endif
