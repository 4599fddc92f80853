// Dispatcher is not how a command's comment begins here.
package main
