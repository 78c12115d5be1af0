// Package writer writes the checkpoint while the router runs: cuts at the pace that a budget of CPU
// allows, intents within 10 ms. Changes that could not be written are merged with later ones.
package writer
