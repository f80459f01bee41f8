"""Ways to start learners in a place: process, container, pod."""
