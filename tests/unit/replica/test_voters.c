/* Which nodes hold the record, as nodes come and go. */
#include "rendezvous/replica/voters.h"

#include "base/assert.h"

#include <criterion/criterion.h>

TestSuite(voters, .timeout = 10);

enum { NODES = 12, SELF = 1 };

/* Nodes 1, 2, ..., the first of which leads and votes. */
static void list(struct ct_replica_node *nodes, size_t count)
{
    static const char *const hosts[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"};

    for (size_t i = 0; i < count; i++)
        nodes[i] = (struct ct_replica_node){.id = i + 1, .host = hosts[i], .votes = i == 0};
}

/* Make all changes that are due; how many nodes vote then. */
static size_t change(struct ct_replica_node *nodes, size_t count)
{
    size_t index, voters = 0;
    enum ct_replica_change next;

    for (int i = 0; (next = ct_replica_next_change(nodes, count, SELF, &index)) != CT_REPLICA_KEEP;
         i++) {
        cr_assert_lt(i, 2 * NODES, "it never ends");
        cr_assert_lt(index, count);
        cr_assert_neq(nodes[index].votes, next == CT_REPLICA_ADD);
        nodes[index].votes = next == CT_REPLICA_ADD;
    }
    for (size_t i = 0; i < count; i++)
        voters += nodes[i].votes;
    return voters;
}

Test(voters, two_three_or_five_hold_the_record_by_the_number_of_nodes)
{
    static const size_t expected[] = {0, 1, 2, 3, 3, 5, 5, 5, 5, 5, 5, 5, 5};
    struct ct_replica_node nodes[NODES];

    for (size_t count = 1; count <= NODES; count++) {
        list(nodes, count);
        cr_assert_eq(change(nodes, count), expected[count], "%zu nodes", count);
        for (size_t i = 0; i < expected[count]; i++)
            cr_assert(nodes[i].votes, "the first come first");
    }
}

Test(voters, one_that_is_gone_is_removed_before_another_takes_its_place)
{
    struct ct_replica_node nodes[4];
    size_t index;

    list(nodes, 4);
    (void)change(nodes, 4);
    nodes[1].gone = true;
    cr_assert_eq(ct_replica_next_change(nodes, 4, SELF, &index), CT_REPLICA_REMOVE);
    cr_assert_eq(index, 1);
    nodes[1].votes = false;
    cr_assert_eq(ct_replica_next_change(nodes, 4, SELF, &index), CT_REPLICA_ADD);
    cr_assert_eq(index, 3);
}

Test(voters, they_are_of_different_hosts_where_there_are_enough)
{
    struct ct_replica_node nodes[5];

    list(nodes, 4);
    nodes[1].host = nodes[2].host = "a";
    cr_assert_eq(change(nodes, 4), 3);
    cr_assert(nodes[3].votes, "the only one of another host");
    cr_assert(nodes[1].votes && !nodes[2].votes);
}

Test(voters, who_votes_goes_on_while_enough_of_them_are_there)
{
    struct ct_replica_node nodes[6];

    list(nodes, 6);
    (void)change(nodes, 6);
    nodes[5].gone = true; /* it does not vote */
    size_t index;
    cr_assert_eq(ct_replica_next_change(nodes, 6, SELF, &index), CT_REPLICA_KEEP);
}

Test(voters, one_that_is_gone_is_removed_but_none_that_lives_and_never_the_leader)
{
    struct ct_replica_node nodes[5];

    list(nodes, 5);
    (void)change(nodes, 5);
    nodes[2].gone = true;
    cr_assert_eq(change(nodes, 5), 4);
    cr_assert(nodes[0].votes && nodes[1].votes && nodes[3].votes && nodes[4].votes);
    nodes[0].gone = true;
    (void)change(nodes, 5);
    cr_assert(nodes[0].votes, "it is the one that changes them");
}
