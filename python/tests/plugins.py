"""The plug-ins of `crates/marcato-sim/examples`, in Python."""

from __future__ import annotations

from typing import Optional

import pymarcato


class Aimd(pymarcato.CongestionControl):
    """Additive increase by a segment per round trip, multiplicative decrease."""

    name = "aimd"
    parameters = ("decrease",)

    def __init__(self, start: pymarcato.Start, decrease: float = 0.5) -> None:
        super().__init__(start)
        self.mss, self.acked, self.decrease = start.mss, 0, decrease

    def on_ack(self, ack: pymarcato.Ack) -> None:
        # The sender repairs losses by itself, and an unused window gives no information.
        if ack.state in ("recovery", "reduction") or ack.used + self.mss < self.cwnd:
            return
        if self.cwnd < self.ssthresh:
            self.cwnd += min(ack.newly_acked, 2 * self.mss)
            return
        self.acked += ack.newly_acked
        if self.acked >= self.cwnd:
            self.acked -= self.cwnd
            self.cwnd += self.mss

    def on_congestion(self, now_ns: int, in_flight: int, signal: str) -> None:
        left = int(min(in_flight, self.cwnd) * self.decrease)
        self.ssthresh = max(left, 2 * self.mss)
        self.cwnd, self.acked = self.ssthresh, 0

    def on_recovered(self, now_ns: int) -> None:
        self.cwnd = self.ssthresh

    def on_rto(self, now_ns: int, in_flight: int, first: bool) -> None:
        if first:
            self.on_congestion(now_ns, in_flight, "loss")
        self.cwnd = self.mss


class Cheapest(pymarcato.LaneScheduler):
    """Takes the lane of the cheapest path, and waits while it is full."""

    name = "cheapest"

    def choose(self, now_ns: int, lanes: list[pymarcato.Lane], packet: pymarcato.Packet) -> Optional[int]:
        return min(lanes, key=lambda lane: lane.path).id


class Pages(pymarcato.Workload):
    """Page loads: each an urgent document and images in the background."""

    name = "pages"
    parameters = ("images", "pause")

    def __init__(self, images: float = 4, pause: str = "1 s") -> None:
        self.images, self.pause_ns, self.left = int(images), pymarcato.span_ns(pause), 0

    def next(self, now_ns: int, random: pymarcato.Random) -> pymarcato.Release:
        if self.left > 0:
            self.left -= 1
            return pymarcato.Release(5_000_000, 20_000 + random.below(180_001), priority=3)
        self.left = self.images
        return pymarcato.Release(random.exponential_ns(self.pause_ns), 30_000, priority=0, lifetime_ns=8_000_000_000)
