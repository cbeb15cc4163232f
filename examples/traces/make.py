#!/usr/bin/env python3
"""Makes cellular.trace: half a minute of a synthetic cellular link, in mahimahi's format.

The rate wanders between 0.5 and 16 Mbit/s on a logarithmic scale, and now and then stands still for a moment, as in a
handover. It is drawn from a seed and measured nowhere. Run it without arguments; the trace goes to standard output.
"""

import math

SECONDS = 30
SLOWEST, FASTEST, MEAN = 0.5e6, 16e6, 5e6
BITS = 1500 * 8


def draws(state):
    """Numbers from 0 to 1: SplitMix64, so that every version of Python gives the same."""
    mask = (1 << 64) - 1
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
        yield ((mixed ^ (mixed >> 31)) >> 11) / float(1 << 53)


def main():
    draw = draws(20)
    level = math.log(MEAN)
    standstill = 0
    credit = 0.0
    for ms in range(1, SECONDS * 1000 + 1):
        if ms % 100 == 1:
            # A walk that is drawn back to the mean.
            step = (next(draw) + next(draw) + next(draw) - 1.5) * 0.6
            level += step + 0.05 * (math.log(MEAN) - level)
            level = min(max(level, math.log(SLOWEST)), math.log(FASTEST))
            if next(draw) < 0.01:
                standstill = 150 + int(next(draw) * 250)
        if standstill > 0:
            standstill -= 1
            continue
        credit += math.exp(level) / 1000 / BITS
        while credit >= 1:
            print(ms)
            credit -= 1


if __name__ == "__main__":
    main()
