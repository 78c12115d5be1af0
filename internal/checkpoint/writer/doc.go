// Package writer writes the checkpoint while the router runs: cuts at the pace that a budget of CPU
// allows, intents within 10 ms. What could not be written is merged with what comes later.
package writer
