"""Its folder is on the path of every test below it: simulations and scripts lie here."""
