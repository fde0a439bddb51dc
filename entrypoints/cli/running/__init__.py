"""What the commands do, once it is known that they are to be run and not only explained."""
