"""What must hold when things go wrong: kills, bit flips, full disks, hostile trees and manifests, and races.

scene      a store with older snapshots and a live cache, and what both must look like after a fault
children   work in forked children that end, or are killed, at a chosen moment
"""
