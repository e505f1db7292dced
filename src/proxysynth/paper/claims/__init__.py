"""The paper's statements about results, each tested by a stated rule on our numbers and on the
paper's own. Statements about equations, settings, data and code are tested in `tests/`.

    claims.toml   the sentences, with the rule that tests each; where the paper contradicts itself,
                  and where this code does something else than its text
    rules.py      the rules, and the claims as values
    claim.py      what a rule reads, and how margins over seeds become a verdict
"""
