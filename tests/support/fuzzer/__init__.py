"""A fuzzer of faults: random histories of clia and of a person's git, with killed and stopped processes and damaged surroundings.

A history is a list of steps that one seed determines. One process runs at a time, until it ends, is killed or is stopped after its
nth change of the disk, so a history can be repeated and shortened. Bursts are the exception: several processes run at once.

- ``traced`` runs a function or a program under ptrace, and kills or stops it.
- ``place`` is where a history happens, and what its verbs have acknowledged.
- ``verbs`` and ``upkeep_verbs`` are the verbs of a space, ``person`` what people do with git, ``surroundings`` what happens to
  disks, stores and hubs.
- ``planning`` chooses the world and the steps of a history by its seed, ``history`` plays and shortens it.
- ``oracle`` compares what was acknowledged with what is there.

``python -m support.fuzzer --seed 7`` plays one history; ``--seed "fleet 7"`` one with two machines, a hub and PostgreSQL.
"""
