"""Training loops of several kinds, each in a process forked off; prints the process of each."""

import os
import traceback

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)


def make_net():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


def train(net, num_steps):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(num_steps):
        optimizer.zero_grad()
        net(torch.ones(2, 8)).sum().backward()
        optimizer.step()


def new_optimizer_for_each_fold():
    net = make_net()
    for num_steps in (6, 7):
        train(net, num_steps)


def two_optimizers_that_are_kept():
    net = make_net()
    kept = [torch.optim.SGD(net.parameters(), lr=0.01) for _ in range(2)]
    for optimizer in kept:
        for _ in range(5):
            net(torch.ones(2, 8)).sum().backward()
            optimizer.step()


def critic_and_generator():
    generator, critic = make_net(), make_net()
    of_generator = torch.optim.Adam(generator.parameters())
    of_critic = torch.optim.Adam(critic.parameters())
    for _ in range(9):
        for _ in range(2):
            (
                critic(torch.ones(2, 8)) - critic(generator(torch.ones(2, 8)).detach())
            ).sum().backward()
            of_critic.step()
        critic(generator(torch.ones(2, 8))).sum().backward()
        of_generator.step()


class Checkpointed(nn.Module):
    """Its parts are called once more in the backward pass."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for part, is_reentrant in zip(self.parts, (False, True, False), strict=True):
            x = checkpoint(part, x, use_reentrant=is_reentrant)
        return x


def activation_checkpoints():
    net = Checkpointed()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(9):
        net(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def closure():
    net = make_net()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)

    def loss():
        optimizer.zero_grad()
        found = net(torch.ones(2, 8)).square().sum()
        found.backward()
        return found

    for _ in range(8):
        optimizer.step(loss)


def several_models():
    encoder, decoder = make_net(), make_net()
    optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.01)
    for _ in range(11):
        decoder(encoder(torch.ones(2, 8))).sum().backward()
        optimizer.step()


def scaler_that_leaves_steps_out():
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    for number in range(12):
        loss = net(torch.ones(2, 8)).sum() * (float("inf") if number % 4 == 0 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


KINDS = (
    new_optimizer_for_each_fold,
    two_optimizers_that_are_kept,
    critic_and_generator,
    closure,
    activation_checkpoints,
    several_models,
    scaler_that_leaves_steps_out,
)
for kind in KINDS:
    if not (child := os.fork()):
        try:
            kind()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(child, kind.__name__, status)
