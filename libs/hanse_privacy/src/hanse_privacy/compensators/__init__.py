"""Several compensators, k of n: how a site's mask is shared among them, and how they agree on whom they sum.

**Sharing.** For each choice T of n - k + 1 of the n compensators a site draws a seed, which every one of T is given;
its mask is the sum of the seeds' keystreams (`shares`). Any k compensators have a member in every T, for only n - k <
|T| are missing. Any k - 1 miss the T of all others, whose keystream hides the update like a mask of its own. Only
seeds travel, and sums of keystreams over a whole set come back: nobody ever has one site's mask. This is replicated
secret sharing with pseudo-random shares (Ito, Saito, Nishizeki 1987; Cramer, Damgard, Ishai 2005, section 2).

**Agreement.** Two holders of one T that summed it over different sets would give a hub that lies the difference: the
keystreams of single sites, for every T. So no compensator sums before it has seen the ballots of k (`ballots`): each
casts one for a set only after its own memory has admitted it, and tells with it what it remembers of the work. More
than half are needed (2k > n), so two sets with k ballots each have a voter in common, whose later ballot tells of the
earlier set. Whoever sums applies the chain rule (`works.chain`) to all that the k voters remember together, since
three sets may be wrong of which every two are right.

**What is assumed.** Fewer than k compensators tell all that they have to a hub that lies, and fewer than 2k - n of
these cast false ballots, too; at k = n, any n - 1. No protocol that goes on without n - k of them resists more: a hub
that carries all messages can keep two halves of the honest ones from hearing of each other.

**Keys** that seeds are sealed to last for hours and are destroyed afterwards (`keys`), so that who seizes
compensators later cannot open what was recorded before.
"""
