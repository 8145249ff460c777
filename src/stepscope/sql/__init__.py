"""Questions of one's own: SQL over the tables of a profile, and over what is derived from them. It only ever reads."""
