"""cowboy: carries an agent's inbox to the agent and its answers back."""
