"""All estimators, as pure functions of tensors: they turn rewards into the inputs of TRL's loss.

The suffix of a tensor's name is its dimensions: B groups of a batch, G rollouts of a group, C conversations of a
rollout, N rows (conversations of a batch), T tokens of a row. A reward of NaN means none.

Sources: GRPO (DeepSeekMath, arXiv 2402.03300), DAPO (arXiv 2503.14476), MemAgent (arXiv 2507.02259), truncated
importance sampling (Ionides 2008; for rollout engines Yao et al. 2025, fengyao.notion.site/off-policy-rl).
"""

# ruff: noqa: N803, N806  (names of tensors end in their dimensions)

import torch
from torch import Tensor

STD_FLOOR = 1e-6
"""Added to a standard deviation before dividing; small compared with any real difference in rewards."""


def centred_advantages(rewards_BG: Tensor) -> Tensor:
    """A = R - mean of the group (MemAgent; GRPO without its division, which gives hard and easy samples more weight).

    Args:
        rewards_BG: NaN for a rollout without a reward: it is left out of the mean, and its advantage is 0.

    Returns:
        advantages_BG: 0 in a group with fewer than two rewards, or with equal ones.
    """
    advantages_BG = rewards_BG - rewards_BG.nanmean(dim=1, keepdim=True)
    # The mean of equal floats may be off by a rounding error, which would give such a group a gradient.
    return advantages_BG.nan_to_num(0.0) * keep_groups(rewards_BG)[:, None]


def standardised_advantages(rewards_BG: Tensor) -> Tensor:
    """A = (R - mean) / (std + 1e-6) of the group (GRPO), with the unbiased standard deviation (n - 1).

    Args:
        rewards_BG: NaN for a rollout without a reward, as in `centred_advantages`.

    Returns:
        advantages_BG: 0 in a group with fewer than two rewards, or with equal ones.
    """
    centred_BG = centred_advantages(rewards_BG)
    freedom_B1 = (rewards_BG.isfinite().sum(dim=1, keepdim=True) - 1).clamp(min=1)
    std_B1 = (centred_BG.square().sum(dim=1, keepdim=True) / freedom_B1).sqrt()
    return centred_BG / (std_B1 + STD_FLOOR)


ADVANTAGES = {"none": centred_advantages, "std": standardised_advantages}
"""Functions that compute advantages, by `AlgorithmSettings.scale`."""


def keep_groups(rewards_BG: Tensor) -> Tensor:
    """Tells which groups have a gradient: dynamic sampling (DAPO).

    Args:
        rewards_BG: NaN for a rollout without a reward.

    Returns:
        keep_B: false where rewards are all equal, or fewer than two.
    """
    scored_BG = rewards_BG.isfinite()
    highest_B = rewards_BG.masked_fill(~scored_BG, -torch.inf).amax(dim=1)
    lowest_B = rewards_BG.masked_fill(~scored_BG, torch.inf).amin(dim=1)
    return highest_B > lowest_B


def overlong_penalty(lengths: Tensor, max_length: int, window: int) -> Tensor:
    """Computes the soft overlong punishment (DAPO, Eq. 13), to be added to a reward.

    Args:
        lengths: tokens, of any shape.
        max_length: L_max.
        window: L_cache.

    Returns:
        The same shape: 0 up to L_max - L_cache, then decreasing linearly to -1 at L_max, -1 beyond.
    """
    over = lengths.to(torch.get_default_dtype()) - (max_length - window)
    return -(over / window).clamp(0, 1)


def step_advantages(rewards_GC: Tensor, scale: str = "none") -> Tensor:
    """Computes advantages of single conversations among all rewarded conversations of their group.

    Args:
        rewards_GC: NaN for a conversation without a step reward, and beyond a rollout's last.
        scale: a key of `ADVANTAGES`.

    Returns:
        advantages_GC: 0 if there is no reward.
    """
    if rewards_GC.numel() == 0:
        return torch.zeros_like(rewards_GC)
    return ADVANTAGES[scale](rewards_GC.reshape(1, -1)).reshape(rewards_GC.shape)


def row_weights(tokens_N: Tensor, group_N: Tensor) -> Tensor:
    """Computes row weights that turn a mean over the tokens of a batch into the mean over groups (MemAgent's loss).

    With n groups, n_g tokens in group g and n_all in the batch, a row of group g gets weight n_all / (n * n_g): the
    weighted tokens of every group sum to n_all / n, and those of the batch to n_all.

    Args:
        tokens_N: sampled tokens.
        group_N: number of a row's group, from 0.

    Returns:
        weights_N, float64; 0 for the rows of a group without tokens.
    """
    tokens_N = tokens_N.to(torch.float64)
    groups = int(group_N.max()) + 1 if group_N.numel() else 0
    tokens_B = tokens_N.new_zeros(groups).index_add_(0, group_N, tokens_N)
    share_B = tokens_N.sum() / (tokens_B * (tokens_B > 0).sum())
    return share_B.masked_fill(tokens_B == 0, 0.0)[group_N]


def truncated_weights(trained_NT: Tensor, sampled_NT: Tensor, cap: float) -> Tensor:
    """Computes truncated importance weights: min(exp(logp_train - logp_rollout), cap) of every token.

    Args:
        trained_NT: log-probabilities under the trainer's arithmetic.
        sampled_NT: log-probabilities of the sampling engine, which may have older weights.
        cap: the maximum weight.

    Returns:
        weights_NT.
    """
    return (trained_NT - sampled_NT).exp().clamp(max=cap)
