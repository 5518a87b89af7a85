"""One folder per architecture, and the text emitters that they share."""
