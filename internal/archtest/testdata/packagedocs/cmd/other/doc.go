// Command other does something.
package main
