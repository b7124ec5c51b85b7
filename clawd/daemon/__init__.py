"""The parent process: starts the server and the learner, keeps them alive, and ends them."""
